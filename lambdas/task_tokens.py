"""What a workflow learns through its task token: a grant, or the end of its heartbeats."""

from __future__ import annotations

from typing import Any, TypeGuard

from fairlock.aws.executions import Delivery
from fairlock.errors import KeepAliveEnded, LockLost, LockStoreUnavailable
from fairlock.names import LogMessage, MetricName
from fairlock.protocol.model import Grant, KeepAliveRequest
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason, Released
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome, keep_alive, why_lost
from lambdas.runtime import count, logger, request_fields, workflows


def answer_task(task_token: str, answer: Grant | Queued | Refusal) -> None:
    """Completes the task of a final answer, and fails that of a refusal; a queued one goes on.

    So does one for which the queue is full: it asks again after its fallback period.
    """
    name = answer.lock_name
    if isinstance(answer, Grant) or _is_final(answer):
        if workflows.wake_waiter(task_token, answer) is Delivery.UNKNOWN:
            message = f"lock {name!r}: granted, but Step Functions did not take the answer"
            raise LockStoreUnavailable(f"{message}; repeat the call")
        return
    if isinstance(answer, Refusal) and answer.reason is not RefusalReason.QUEUE_FULL:
        if answer.reason is RefusalReason.ALREADY_RELEASED:
            message = f"this acquisition of lock {name!r} was released before; start again"
            raise LockLost(message)
        message = f"lock {name!r}: others moved it at every try; repeat the call"
        raise LockStoreUnavailable(message)


def _is_final(answer: Queued | Refusal) -> TypeGuard[Refusal]:
    return isinstance(answer, Refusal) and answer.reason is RefusalReason.SUPERSEDED


def answer_heartbeat(context: LockContext, request: KeepAliveRequest) -> dict[str, Any]:
    """Renews the lease; ends the heartbeat state if the work has ended, or the lock is lost.

    Raises:
        KeepAliveEnded: the work has ended, and the state may not have been notified.
        LockLost: the same for a loss.
    """
    outcome = keep_alive(context, request)
    end = _end_of(context, outcome, request.acquisition.lock_name)
    delivery = Delivery.DELIVERED
    if end is not None:
        owner = request.acquisition
        done = Released(lock_name=owner.lock_name, owner_id=owner.owner_id)
        told = end if isinstance(end, LockLost) else done
        delivery = workflows.end_heartbeat(request.task_token, told)
    _observe(request, outcome, delivery)
    if end is not None and delivery is Delivery.UNKNOWN:
        # Step Functions may refuse for ever, and then never tells the state: its Catch takes this
        # error. If Step Functions took the end after all, the state is over, and nothing happens.
        raise end
    return {"kept": outcome.name}


def _end_of(
    context: LockContext, outcome: KeepAliveOutcome, lock_name: str
) -> KeepAliveEnded | LockLost | None:
    if outcome is KeepAliveOutcome.DONE:
        return KeepAliveEnded(f"the work under lock {lock_name!r} is done")
    if outcome is KeepAliveOutcome.LOST:
        why = why_lost(context, lock_name)
        return LockLost(f"lock {lock_name!r} is not held any more; the work was stopped{why}")
    return None


def _observe(request: KeepAliveRequest, outcome: KeepAliveOutcome, delivery: Delivery) -> None:
    caller = request_fields(request.acquisition)
    # If the state is over, its work has failed and released: that is no loss.
    if outcome is KeepAliveOutcome.LOST and delivery is not Delivery.GONE:
        count(MetricName.LOST)
        logger.warning(LogMessage.LOST, extra=caller)
    elif outcome is KeepAliveOutcome.REACQUIRED:
        count(MetricName.REACQUIRED)
        logger.warning(LogMessage.REACQUIRED, extra=caller)
    else:
        logger.debug(LogMessage[outcome.name], extra=caller)
