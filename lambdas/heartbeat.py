"""Lambda entry point: renew a lease, or keep the lock of a workflow alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas._runtime import count, fingerprint, lock_store, logger, metrics
from leasehold.metrics import MetricName
from leasehold.model import KeepAliveRequest, NotHeld, Renewal
from leasehold.parsing import parse_heartbeat
from leasehold.vicinity import require_near
from leasehold.wire import heartbeat_answer

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Renews or refuses; raises InvalidRequest or LockStoreUnavailable.

    With a task token it answers through it, and only when there is nothing to keep alive any more.
    """
    request = parse_heartbeat(event)
    if isinstance(request, KeepAliveRequest):
        from lambdas._beats import beat  # noqa: PLC0415 - brings boto3, see `_runtime.lock_store`

        require_near(request.execution_arn, function_arn=context.invoked_function_arn)
        return beat(lock_store(context), request)
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
