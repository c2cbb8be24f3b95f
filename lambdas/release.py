"""Lambda entry point: release a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas.runtime import count, fingerprint, lock_store, logger, measure_ms, metrics
from leasehold.metrics import MetricName
from leasehold.protocol.model import NotHeld, Released
from leasehold.wire.answers import release_answer
from leasehold.wire.requests import parse_release
from leasehold.workflows.same_account import require_same_account

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Releases or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_release(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    answer = lock_store(context).release(request)
    _observe(answer, may_have_waited=request.entered_at_ms is not None)
    return release_answer(answer)


def _observe(answer: Released | NotHeld, *, may_have_waited: bool) -> None:
    owner = {"lock_name": answer.lock_name, "owner": fingerprint(answer.owner_id)}
    if isinstance(answer, NotHeld):
        # Who gives up waiting has lost nothing.
        count(MetricName.LOST, 0 if may_have_waited else 1)
        logger.warning("not held", extra=owner)
        return
    count(MetricName.LEFT_QUEUE, int(answer.left_queue))
    if answer.held_ms is not None:
        count(MetricName.RELEASED)
        measure_ms(MetricName.HELD_TIME, answer.held_ms)
    logger.info("released", extra={**owner, "held_ms": answer.held_ms})
