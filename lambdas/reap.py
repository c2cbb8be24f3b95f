"""Lambda entry point: free what workflows that are over have left behind."""

from __future__ import annotations

from functools import partial
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from lambdas.reap_messages import reap_record
from lambdas.runtime import Invocation, entry_point, lock_context, logger

_processor = BatchProcessor(
    event_type=EventType.SQS,
    raise_on_entire_batch_failure=False,
    # Else no log tells why a message failed.
    logger=logger,  # type: ignore[arg-type]  # Powertools' own, which has the same methods
)


@entry_point("dynamodb", "stepfunctions", "sqs", answers=False)
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Names the messages that failed; the queue brings those again, and at last to its DLQ."""
    reap = partial(reap_record, partial(lock_context, context))
    return process_partial_response(event, reap, _processor)  # type: ignore[return-value]  # a TypedDict
