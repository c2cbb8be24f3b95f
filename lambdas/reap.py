"""Lambda entry point: free what workflows that are over have left behind.

The queue brings two kinds of messages: events of Step Functions, each of which makes a first look,
and the handler's own, delayed, each of which makes the second look at the same execution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)

from lambdas.reap_messages import parse_reap_message, schedule_next_pass
from lambdas.runtime import count, lock_store, logger, metrics
from leasehold.metrics import MetricName

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

_processor = BatchProcessor(
    event_type=EventType.SQS,
    raise_on_entire_batch_failure=False,
    # Else nobody hears why a message failed.
    logger=logger,  # type: ignore[arg-type]  # Powertools' own, which has the same methods
)


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Tells which messages failed; the queue brings those again, and at last to its DLQ."""

    def look(record: SQSRecord) -> None:
        ended = parse_reap_message(record.body)
        reaped = lock_store(context).reap(ended)
        count(MetricName.REAPED, reaped.holders)
        count(MetricName.REAPED_WAITERS, reaped.waiters)
        found = {"holders": reaped.holders, "waiters": reaped.waiters}
        logger.info("reaped", extra={"execution_arn": ended.execution_arn, **found})
        schedule_next_pass(ended, complete=reaped.complete)

    return process_partial_response(event, look, _processor, context)  # type: ignore[return-value]  # a TypedDict
