"""Lambda entry point: renew a lease, or keep the lock of a workflow alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlock.protocol.model import KeepAliveRequest
from fairlock.protocol.outcomes import NotHeld
from fairlock.store.keep_alive import renew_lease
from fairlock.wire.answers import heartbeat_answer
from fairlock.wire.requests import parse_heartbeat
from lambdas.runtime import (
    lock_context,
    logger,
    make_clients,
    metrics,
    observe_heartbeat,
    reports_faults,
    require_same_account,
)
from lambdas.task_tokens import answer_heartbeat

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

make_clients("dynamodb", "stepfunctions")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Renews or refuses; raises InvalidRequest or LockStoreUnavailable.

    With a task token it answers through it, and only when there is nothing to keep alive any more.
    """
    request = parse_heartbeat(event)
    if isinstance(request, KeepAliveRequest):
        require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
        return answer_heartbeat(lock_context(context), request)
    grant = renew_lease(lock_context(context), request)
    answer = grant or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)
    observe_heartbeat(answer)
    return heartbeat_answer(answer)
