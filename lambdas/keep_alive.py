"""A beat of keep_alive: the state that sent it hears only how it ends."""

from __future__ import annotations

from typing import Any

from lambdas.runtime import count, fingerprint, logger, workflows
from leasehold.errors import KeepAliveEnded, LockLost
from leasehold.metrics import MetricName
from leasehold.protocol.model import KeepAliveRequest
from leasehold.store.keep_alive import KeepAliveOutcome
from leasehold.store.lock_store import LockStore
from leasehold.workflows.engine import Delivery


def beat(store: LockStore, request: KeepAliveRequest) -> dict[str, Any]:
    """Keeps the lock; ends the state that beats if the work has ended, or the lock is lost.

    Raises:
        KeepAliveEnded: the work has ended, and nobody knows whether the state has heard it.
        LockLost: the same for a loss.
    """
    kept = store.keep_alive(request)
    end = _end_of(kept, request.acquisition.lock_name)
    pushed = None if end is None else _push(request, end)
    _observe(request, kept, heard=pushed is not Delivery.GONE)
    if end is not None and pushed is Delivery.UNKNOWN:
        # Step Functions may refuse for ever, and never tells the state then; its Catch hears this.
        # If it took the end after all, the state is over and nobody hears anything.
        raise end
    return {"kept": kept.name}


def _end_of(kept: KeepAliveOutcome, lock_name: str) -> KeepAliveEnded | LockLost | None:
    match kept:
        case KeepAliveOutcome.DONE:
            return KeepAliveEnded(f"the work under lock {lock_name!r} is done")
        case KeepAliveOutcome.LOST:
            return LockLost(f"lock {lock_name!r} is not held any more; the work was stopped")
        case _:
            return None


def _push(request: KeepAliveRequest, end: KeepAliveEnded | LockLost) -> Delivery:
    return workflows.end_heartbeat(request.task_token, end if isinstance(end, LockLost) else None)


def _observe(request: KeepAliveRequest, kept: KeepAliveOutcome, *, heard: bool) -> None:
    owner = fingerprint(request.acquisition.owner_id)
    extra = {"lock_name": request.acquisition.lock_name, "owner": owner}
    match kept:
        case KeepAliveOutcome.LOST if (
            heard
        ):  # Else the state is over: its work has failed, and released.
            count(MetricName.LOST)
            logger.warning("lost", extra=extra)
        case KeepAliveOutcome.REACQUIRED:
            count(MetricName.REACQUIRED)
            logger.warning("taken again", extra=extra)
        case _:
            logger.debug(kept.name.lower(), extra=extra)
