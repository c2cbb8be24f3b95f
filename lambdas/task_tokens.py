"""What a workflow learns through its task token: a grant, or the end of its heartbeats."""

from __future__ import annotations

from typing import Any

from fairlock.aws.executions import Delivery
from fairlock.errors import KeepAliveEnded, LockLost, LockStoreUnavailable
from fairlock.names import LogMessage, MetricName
from fairlock.protocol.model import Grant, KeepAliveRequest
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason, Released
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome, keep_alive, why_lost
from lambdas.runtime import count, logger, request_fields, workflows


def answer_task(task_token: str, answer: Grant | Queued | Refusal) -> None:
    """Completes the task of a final answer, and fails that of a refusal; a waiter's sleeps on."""
    name = answer.lock_name
    match answer:
        case Grant() | Refusal(reason=RefusalReason.SUPERSEDED):
            if workflows.wake_waiter(task_token, answer) is Delivery.UNKNOWN:
                message = f"lock {name!r}: granted, but Step Functions did not take the answer"
                raise LockStoreUnavailable(f"{message}; repeat the call")
        case Refusal(reason=RefusalReason.ALREADY_RELEASED):
            raise LockLost(f"this acquisition of lock {name!r} was released before; start again")
        case Refusal(reason=reason) if reason is not RefusalReason.QUEUE_FULL:
            message = f"lock {name!r}: others moved it at every try; repeat the call"
            raise LockStoreUnavailable(message)


def answer_heartbeat(context: LockContext, request: KeepAliveRequest) -> dict[str, Any]:
    """Renews the lease; ends the heartbeat state if the work has ended, or the lock is lost."""
    outcome, name = keep_alive(context, request), request.acquisition.lock_name
    end: KeepAliveEnded | LockLost | None = None
    told: Released | LockLost = Released(lock_name=name, owner_id=request.acquisition.owner_id)
    if outcome is KeepAliveOutcome.DONE:
        end = KeepAliveEnded(f"the work under lock {name!r} is done")
    elif outcome is KeepAliveOutcome.LOST:
        why = why_lost(context, name)
        end = told = LockLost(f"lock {name!r} is not held any more; the work was stopped{why}")
    delivery = Delivery.DELIVERED
    if end is not None:
        delivery = workflows.end_heartbeat(request.task_token, told)
    _observe(request, outcome, delivery)
    if end is not None and delivery is Delivery.UNKNOWN:
        # Step Functions may refuse for ever, and then never tells the state: its Catch takes this
        # error. If Step Functions took the end after all, the state is over, and nothing happens.
        raise end
    return {"kept": outcome.name}


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
