"""A beat of keep_alive: the state that sent it hears only how it ends."""

from __future__ import annotations

from typing import Any

from lambdas._runtime import count, end_beat, fingerprint, logger
from leasehold.errors import LockLost, LockStoreUnavailable
from leasehold.keeping import Kept
from leasehold.metrics import MetricName
from leasehold.model import KeepAliveRequest
from leasehold.push import Pushed
from leasehold.store import LockStore


def beat(store: LockStore, request: KeepAliveRequest) -> dict[str, Any]:
    """Keeps the lock; ends the state that beats if the work has ended, or the lock is lost."""
    kept = store.keep_alive(request)
    heard = True
    if kept is Kept.DONE:
        _end(request, None)
    if kept is Kept.LOST:
        lock_name = request.acquisition.lock_name
        lost = LockLost(f"lock {lock_name!r} is not held any more; the work was stopped")
        heard = _end(request, lost)
    _observe(request, kept, heard=heard)
    return {"kept": kept.name}


def _end(request: KeepAliveRequest, lost: LockLost | None) -> bool:
    """Ends the state that beats; tells whether it still waited for that."""
    pushed = end_beat(request.task_token, lost)
    if pushed is Pushed.UNKNOWN:
        message = "Step Functions did not take the answer; repeat the call"
        raise LockStoreUnavailable(message)
    return pushed is Pushed.DELIVERED


def _observe(request: KeepAliveRequest, kept: Kept, *, heard: bool) -> None:
    owner = fingerprint(request.acquisition.owner_id)
    extra = {"lock_name": request.acquisition.lock_name, "owner": owner}
    match kept:
        case Kept.LOST if heard:  # Else the state is over: its work has failed, and released.
            count(MetricName.LOST)
            logger.warning("lost", extra=extra)
        case Kept.TAKEN_AGAIN:
            count(MetricName.TAKEN_AGAIN)
            logger.warning("taken again", extra=extra)
        case _:
            logger.debug(kept.name.lower(), extra=extra)
