"""Lambda entry point: free what workflows that are over have left behind.

The queue brings two kinds of messages: events of Step Functions, each of which begins the first
pass over an execution's claims, and the handler's own, delayed, each of which begins the second.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from lambdas.reap_messages import reap_record
from lambdas.runtime import lock_context, logger, make_clients, metrics

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

make_clients("dynamodb", "stepfunctions", "sqs")

_processor = BatchProcessor(
    event_type=EventType.SQS,
    raise_on_entire_batch_failure=False,
    # Else no log tells why a message failed.
    logger=logger,  # type: ignore[arg-type]  # Powertools' own, which has the same methods
)


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Names the messages that failed; the queue brings those again, and at last to its DLQ."""
    reap = partial(reap_record, partial(lock_context, context))
    return process_partial_response(event, reap, _processor, context)  # type: ignore[return-value]  # a TypedDict
