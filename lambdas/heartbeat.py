"""Lambda entry point: renew a lease, or keep the lock of a workflow alive."""

from __future__ import annotations

from typing import Any

from fairlock.protocol.model import KeepAliveRequest
from fairlock.protocol.outcomes import NotHeld
from fairlock.store.keep_alive import renew_lease
from fairlock.wire.answers import heartbeat_answer
from fairlock.wire.requests import parse_heartbeat
from lambdas.runtime import (
    Invocation,
    entry_point,
    lock_context,
    observe_heartbeat,
    require_same_account,
)
from lambdas.task_tokens import answer_heartbeat


@entry_point("dynamodb", "stepfunctions")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Renews or refuses; with a task token it answers when there is nothing to keep alive."""
    request = parse_heartbeat(event)
    if isinstance(request, KeepAliveRequest):
        require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
        return answer_heartbeat(lock_context(context), request)
    grant = renew_lease(lock_context(context), request)
    answer = grant or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)
    observe_heartbeat(answer)
    return heartbeat_answer(answer)
