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

from enum import Enum, auto

from leasehold.dynamodb.lock_table import Cancelled, Written
from leasehold.protocol.claims import (
    Claim,
    claim_of,
    has_ended,
    is_fenced,
    reacquire_after_redrive,
    record_heartbeat,
)
from leasehold.protocol.holders import read_holder
from leasehold.protocol.items import read_state
from leasehold.protocol.model import Grant, HeartbeatRequest, KeepAliveRequest, LockState
from leasehold.protocol.permits import renew
from leasehold.store.context import LockContext
from leasehold.store.hand_over import outcome_unknown
from leasehold.store.own_end import with_right_end


class KeepAliveOutcome(Enum):
    """What a heartbeat has found."""

    RENEWED = auto()
    REACQUIRED = auto()
    """The execution had ended, and was redriven; its lock was free."""
    DONE = auto()
    LOST = auto()


def renew_lease(context: LockContext, request: HeartbeatRequest) -> Grant | None:
    """Lets the lease end one lease from now; None if its owner is no holder.

    One request; one more when the item must be retained for longer, or if our clock is wrong and
    this was the first request of the process.
    """
    for retain_long in (False, True):
        update = renew(request, now_ms=context.aws_clock.now_ms(), retain_long=retain_long)
        outcome = context.table.update(update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            grant = with_right_end(context, request.lock_name, holder, outcome)
            return grant or renew_lease(context, request)
        if read_state(outcome.item).holder(request.owner_id) is None:
            break
        # A holder was refused: TTL would soon delete the lock that it holds, see `retention.py`.
    return None


def keep_alive(context: LockContext, request: KeepAliveRequest) -> KeepAliveOutcome:
    """See `LockStore.keep_alive`."""
    acquisition = request.acquisition
    claim = claim_of(acquisition, request.execution_arn)
    now_ms = context.aws_clock.now_ms()
    recorded = context.table.update(record_heartbeat(claim, request.task_token, now_ms=now_ms))
    found = recorded.item
    if isinstance(recorded, Written) or not (has_ended(found) or is_fenced(found)):
        owner_id, lease_ms = acquisition.owner_id, acquisition.lease_ms
        heartbeat = HeartbeatRequest(
            lock_name=acquisition.lock_name, owner_id=owner_id, lease_ms=lease_ms
        )
        if renew_lease(context, heartbeat) is not None:
            return KeepAliveOutcome.RENEWED
        found = context.table.read(claim.key)
    if has_ended(found):
        return KeepAliveOutcome.DONE
    return _take_again(context, request, claim) if is_fenced(found) else KeepAliveOutcome.LOST


def _take_again(context: LockContext, request: KeepAliveRequest, claim: Claim) -> KeepAliveOutcome:
    acquisition = request.acquisition
    outcome = _reacquire(context, request, claim)
    if isinstance(outcome, Cancelled) and outcome.state is not None:
        state = read_state(outcome.state)
        is_free = not state.contended and state.has_room(acquisition.limit)
        if is_free and state.holder(acquisition.owner_id) is None:
            # The holders name other limits.
            outcome = _reacquire(context, request, claim, seen=state)
    if isinstance(outcome, Written):
        return KeepAliveOutcome.REACQUIRED
    if outcome.state is not None:
        if read_state(outcome.state).holder(acquisition.owner_id) is None:
            return KeepAliveOutcome.LOST
    elif has_ended(context.table.read(claim.key)):
        return KeepAliveOutcome.DONE
    # The reaper is at work, or another copy of this heartbeat is.
    raise outcome_unknown(acquisition.lock_name, "its claim changed at the same time")


def _reacquire(
    context: LockContext, request: KeepAliveRequest, claim: Claim, seen: LockState | None = None
) -> Written | Cancelled:
    now_ms = context.aws_clock.now_ms()
    return context.table.transact(
        reacquire_after_redrive(
            claim, request.acquisition, request.task_token, now_ms=now_ms, seen=seen
        )
    )
