"""Lambda entry point: renew a lease, or keep the lock of a workflow alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas.runtime import count, fingerprint, lock_store, logger, metrics
from leasehold.metrics import MetricName
from leasehold.protocol.model import KeepAliveRequest, NotHeld, Renewal
from leasehold.wire.answers import heartbeat_answer
from leasehold.wire.requests import parse_heartbeat
from leasehold.workflows.same_account import require_same_account

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
        from lambdas.keep_alive import beat  # noqa: PLC0415 - brings boto3, see `_runtime.lock_store`

        require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
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
