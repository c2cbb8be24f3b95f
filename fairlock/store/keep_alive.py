"""Renewing a lease, and keep_alive: the heartbeats of a state that stands beside a workflow's work.

record the heartbeat ─▶ written, or there is no claim ─▶ renew ─▶ written ─────▶ renewed
     │                                                      └────▶ not held ─┐
     └──▶ refused ───────────────▶ the claim as it is ◀──────────────────────┘
                                     ├─ the work has ended ─────────────────▶ done
                                     ├─ fenced: the execution was over, and redriven
                                     │     └─ take the lock again ─▶ free ──▶ taken again
                                     │                          └──▶ taken ─▶ lost
                                     └─ it stands, or there is none ────────▶ lost

Release marks the claim as ended before it frees the lock. So a heartbeat that finds the lock gone
and the claim without that mark has lost the lock, whatever others did in between. Only a lock that
the reaper freed is taken again: a heartbeat may land after its work has failed, and the lock was
released.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from fairlock.aws.lock_table import Cancelled, Written
from fairlock.protocol.admission import needs_longer_retention
from fairlock.protocol.claims import (
    Claim,
    claim_of,
    has_ended,
    is_fenced,
    reacquire_after_redrive,
    read_claim,
    record_heartbeat,
    renew_under_fence,
)
from fairlock.protocol.grants import renew, renew_as_seen
from fairlock.protocol.items import read_holder, read_state
from fairlock.protocol.model import (
    AcquireRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    LockState,
)
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.schema import lock_key
from fairlock.store.context import LockContext, outcome_unknown, pause_or_give_up, with_right_end
from fairlock.store.hand_off import hand_over, supersede_waiters


class KeepAliveOutcome(Enum):
    """What a heartbeat has found."""

    RENEWED = auto()
    REACQUIRED = auto()
    """The execution had ended, and was redriven; its lock was free."""
    DONE = auto()
    LOST = auto()


def renew_lease(context: LockContext, request: HeartbeatRequest) -> Grant | None:
    """Lets the lease end one lease from now, or later; None if its owner is no holder.

    One request; one more if our clock is wrong and this was the first request of the process; and
    one more if the first supposed something else of the grant than is stored: that it ends no later
    than asked, has the usual lease if the request names none, and is on an item that TTL spares
    (`admission.py`).

    Raises:
        LockStoreUnavailable: outcome unknown, or other heartbeats kept changing the grant.
    """
    began = context.retry_budget.clock.monotonic()
    update, number = renew(request, now_ms=context.aws_clock.now_ms()), 0
    while True:
        outcome = context.table.update(update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            grant = with_right_end(context, request.lock_name, holder, outcome)
            return grant or renew_lease(context, request)
        state = read_state(outcome.item)
        found = state.holder(request.owner_id)
        if found is None:
            return None
        pause_or_give_up(context, request.lock_name, began=began, attempt=number)
        if state.supersedes(request.only_newest):
            request = replace(request, only_newest=None)  # It holds beside a newer one.
        now_ms, number = context.aws_clock.now_ms(), number + 1
        retain_long = needs_longer_retention(state, now_ms=now_ms)
        update = renew_as_seen(request, found, now_ms=now_ms, retain_long=retain_long)


def take_up(context: LockContext, request: AcquireRequest) -> Grant | None:
    """Renews a grant that its owner has found, before it relies on it; None if it is gone.

    A waiter that polls may have died, so its hand-off marked nothing as the newest: this does.
    """
    grant = renew_lease(context, request.heartbeat)
    if grant is not None and request.only_newest is not None:
        supersede_waiters(context, request.lock_name)
    return grant


def keep_alive(context: LockContext, request: KeepAliveRequest) -> KeepAliveOutcome:
    """A heartbeat of a workflow beside its work: two requests.

    Tells a lock that was lost from one that was released because the work has ended, and takes the
    lock again for an execution that had ended and was redriven, if it is free. The fencing token is
    then a new one, which the workflow does not know: its old one is still refused where a newer was
    seen.
    """
    acquisition = request.acquisition
    claim = claim_of(acquisition, request.execution_arn)
    now_ms = context.aws_clock.now_ms()
    recorded = context.table.update(record_heartbeat(claim, request.task_token, now_ms=now_ms))
    found = recorded.item
    # A record that is refused without a mark means: there is no claim. The lock alone decides then.
    if isinstance(recorded, Written) or not (has_ended(found) or is_fenced(found)):
        if renew_lease(context, acquisition.heartbeat) is not None:
            return KeepAliveOutcome.RENEWED
        # The lock is gone. Read the claim again: a release marks it before it frees the lock, so
        # the mark is there now if the lock went by the work's own release.
        found = context.table.read(claim.key)
    if has_ended(found):
        return KeepAliveOutcome.DONE
    if not is_fenced(found):
        return KeepAliveOutcome.LOST
    # The fence is of the run that ended; what is written over it is of the run that asks now.
    fenced = read_claim(request.execution_arn, found)
    return _take_again(context, request, replace(fenced, redrives=acquisition.redrives))


def _take_again(context: LockContext, request: KeepAliveRequest, claim: Claim) -> KeepAliveOutcome:
    """For an execution that was reaped, and redriven: it takes the lock again, or still holds."""
    acquisition = request.acquisition
    # Claim and grant in one transaction: a release or a reaper that comes in between moves the
    # claim, and the lock is not taken for work that has ended.
    outcome = _reacquire(context, request, claim)
    if isinstance(outcome, Cancelled) and outcome.state is not None:
        # The holders name other limits; or a late join has left the mark of a queue. That is taken
        # away first, or a waiter is served: then the state is another one, perhaps without room.
        state = read_state(outcome.state)
        if state.contended and _may_retake(state, acquisition):
            hand_over(context, acquisition.lock_name, state)
            outcome = replace(outcome, state=context.table.read(lock_key(acquisition.lock_name)))
            state = read_state(outcome.state or {})
        if _may_retake(state, acquisition):
            outcome = _reacquire(context, request, claim, seen=state)
    if isinstance(outcome, Written):
        return KeepAliveOutcome.REACQUIRED
    if outcome.state is not None:
        holder = read_state(outcome.state).holder(acquisition.owner_id)
        # The reaper freed it, and others have the permits by now: this one is lost for good.
        if holder is None:
            return KeepAliveOutcome.LOST
        # The fence came late, when the execution was redriven already.
        heartbeat = acquisition.heartbeat
        now_ms = context.aws_clock.now_ms()
        renewal = renew_under_fence(claim, heartbeat, holder, request.task_token, now_ms=now_ms)
        if isinstance(context.table.transact(renewal), Written):
            return KeepAliveOutcome.RENEWED
    elif has_ended(context.table.read(claim.key)):
        return KeepAliveOutcome.DONE
    # The reaper is at work, or another copy of this heartbeat is.
    raise outcome_unknown(acquisition.lock_name, "its claim changed at the same time")


def _may_retake(state: LockState, acquisition: AcquireRequest) -> bool:
    """Whether there is room in this state for an acquisition that does not hold."""
    return state.has_room(acquisition.limit) and state.holder(acquisition.owner_id) is None


def _reacquire(
    context: LockContext, request: KeepAliveRequest, claim: Claim, seen: LockState | None = None
) -> Written | Cancelled:
    now_ms = context.aws_clock.now_ms()
    return context.table.transact(
        reacquire_after_redrive(
            claim, request.acquisition, request.task_token, now_ms=now_ms, seen=seen
        )
    )
