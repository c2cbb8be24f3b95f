"""Lambda entry point: acquire a lock, or join its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlock.store.acquire import acquire
from fairlock.wire.answers import acquire_answer
from fairlock.wire.requests import parse_acquire
from fairlock.wire.rules import callback_id_in
from lambdas.runtime import (
    aws_clock,
    lock_context,
    logger,
    make_clients,
    metrics,
    observe_acquire,
    reports_faults,
    require_durable_calls,
    require_same_account,
)
from lambdas.task_tokens import answer_task

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

make_clients("dynamodb", "stepfunctions")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Grants, queues or refuses; raises InvalidRequest, or an error of the lock store."""
    request = parse_acquire(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    require_durable_calls(request.execution_arn)
    answer = acquire(lock_context(context), request)
    observe_acquire(request, answer, now_ms=aws_clock.now_ms())
    if request.task_token is not None and callback_id_in(request.task_token) is None:
        answer_task(request.task_token, answer)  # A durable execution gets this very answer.
    return acquire_answer(answer)
