"""Lambda entry point: acquire a lock, or join its queue."""

from __future__ import annotations

from typing import Any

from fairlock.store.acquire import acquire
from fairlock.wire.answers import acquire_answer
from fairlock.wire.requests import parse_acquire
from fairlock.wire.rules import callback_id_in
from lambdas.runtime import (
    Invocation,
    aws_clock,
    entry_point,
    lock_context,
    observe_acquire,
    require_durable_calls,
    require_same_account,
)
from lambdas.task_tokens import answer_task


@entry_point("dynamodb", "stepfunctions")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Grants, queues or refuses; raises InvalidRequest, or an error of the lock store."""
    request = parse_acquire(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    require_durable_calls(request.execution_arn)
    answer = acquire(lock_context(context), request)
    observe_acquire(request, answer, now_ms=aws_clock.now_ms())
    if request.task_token is not None and callback_id_in(request.task_token) is None:
        answer_task(request.task_token, answer)  # A durable execution gets this very answer.
    return acquire_answer(answer)
