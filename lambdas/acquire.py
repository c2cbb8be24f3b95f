"""Lambda entry point: acquire a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas._runtime import count, fingerprint, lock_store, logger, metrics
from leasehold.metrics import MetricName
from leasehold.model import Grant, Refusal
from leasehold.rules import parse_acquire
from leasehold.wire import acquire_answer

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """Grants or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_acquire(event)
    answer = lock_store().acquire(request)
    _observe(answer)
    return acquire_answer(answer)


def _observe(answer: Grant | Refusal) -> None:
    owner = {"lock_name": answer.lock_name, "owner": fingerprint(answer.owner_id)}
    if isinstance(answer, Grant):
        count(MetricName.GRANTED, 0 if answer.repeated else 1)
        count(MetricName.TAKEN_OVER, answer.taken_over)
        logger.info("granted", extra={**owner, "fencing_token": answer.fencing_token})
    else:
        count(MetricName.BUSY)
        count(MetricName.EXTENDED, answer.extended)
        count(MetricName.LIVENESS_UNKNOWN, answer.liveness_unknown)
        logger.info("refused", extra={**owner, "reason": answer.reason.value})
