"""Lambda entry point: acquire a lock, or join its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lambdas.runtime import count, fingerprint, lock_store, logger, metrics, workflows
from leasehold.errors import LockLost, LockStoreUnavailable
from leasehold.metrics import MetricName
from leasehold.protocol.model import AcquireRequest, Grant, Queued, Refusal, RefusalReason
from leasehold.wire.answers import acquire_answer
from leasehold.wire.requests import parse_acquire
from leasehold.workflows.engine import Delivery
from leasehold.workflows.same_account import require_same_account

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Grants, queues or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_acquire(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    answer = lock_store(context).acquire(request)
    _observe(answer)
    if request.task_token is not None:
        _answer_task(request, request.task_token, answer)
    return acquire_answer(answer)


def _answer_task(
    request: AcquireRequest, task_token: str, answer: Grant | Queued | Refusal
) -> None:
    """A workflow that waits for its task token hears of a grant, or fails, at once."""
    if isinstance(answer, Grant) and workflows.wake_waiter(task_token, answer) is Delivery.UNKNOWN:
        message = "granted, but Step Functions did not take the answer; repeat the call"
        raise LockStoreUnavailable(message)
    if isinstance(answer, Refusal):
        if answer.reason is RefusalReason.ALREADY_RELEASED:
            message = f"this acquisition of {request.lock_name!r} was released before; begin anew"
            raise LockLost(message)
        message = "others moved the lock all the time; repeat the call"
        raise LockStoreUnavailable(message)


def _observe(answer: Grant | Queued | Refusal) -> None:
    owner = {"lock_name": answer.lock_name, "owner": fingerprint(answer.owner_id)}
    match answer:
        case Grant():
            count(MetricName.GRANTED, 0 if answer.repeated else 1)
            count(MetricName.TAKEN_OVER, answer.taken_over)
            logger.info("granted", extra={**owner, "fencing_token": answer.fencing_token})
        case Queued():
            count(MetricName.QUEUED)
            count(MetricName.QUEUE_LENGTH, answer.position)
            logger.info("queued", extra={**owner, "position": answer.position})
        case Refusal():
            count(MetricName.BUSY, int(answer.reason is RefusalReason.HELD))
            logger.info("refused", extra={**owner, "reason": answer.reason.value})
