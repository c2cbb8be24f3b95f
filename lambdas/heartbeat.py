"""Lambda entry point: renew a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas._runtime import count, fingerprint, lock_store, logger, metrics
from leasehold.metrics import MetricName
from leasehold.model import NotHeld, Renewal
from leasehold.rules import parse_heartbeat
from leasehold.wire import heartbeat_answer

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Renews or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_heartbeat(event)
    answer = lock_store(context).heartbeat(request)
    _observe(answer)
    return heartbeat_answer(answer)


def _observe(answer: Renewal | NotHeld) -> None:
    owner = {"lock_name": answer.lock_name, "owner": fingerprint(answer.owner_id)}
    if isinstance(answer, Renewal):
        logger.debug("renewed", extra={**owner, "fencing_token": answer.fencing_token})
    else:
        count(MetricName.LOST)
        logger.warning("not held", extra=owner)
