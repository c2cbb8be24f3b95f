"""Release by force: somebody who has seen a grant ends it in its holder's place.

read ─▶ the grant is there, nobody waits ─▶ release_by_force ─▶ released
  │                       │                       └─ condition failed, with the item as it was ─┐
  │                       └─ others wait ─▶ hand over ─▶ released                                 │
  └─ it is not there ─▶ the lock has the mark of this very release ─▶ released (again)            │
                └─────▶ it has not ─▶ no such holder         (decided anew on that item) ◀────────┘

The grant is named by its fencing token, which no other grant of this lock has. So whatever happens
between the moment when somebody saw a holder and the write, it takes out that grant or nothing. A
heartbeat in between does not prevent it: the holder is to be freed although it lives.

The former holder is told as one that was evicted: its heartbeat and its release answer "not held".
Its claim, if it is a workflow, is its own, and stays until it releases or is reaped.
"""

from __future__ import annotations

from fairlock.dynamodb.lock_table import Written
from fairlock.protocol.departure import DepartingHolder
from fairlock.protocol.items import read_state
from fairlock.protocol.model import (
    ForcedRelease,
    ForceReleaseRequest,
    Holder,
    LockState,
    Released,
)
from fairlock.protocol.permits import release_by_force
from fairlock.protocol.schema import lock_key
from fairlock.store.context import LockContext
from fairlock.store.events import ReleasedByForce
from fairlock.store.hand_over import REPLY_LOST, hand_over, outcome_unknown, pause_or_give_up


def force_release(context: LockContext, request: ForceReleaseRequest) -> Released | None:
    """See `LockStore.force_release`."""
    state = read_state(context.table.read(lock_key(request.lock_name)))
    holder = _holder_of(state, request.fencing_token)
    if holder is None:
        return _released_before(request, state)
    departing = DepartingHolder(holder, voluntary=False, forced=_mark(context, request))
    began, attempt = context.retry_budget.clock.monotonic(), 0
    while not state.contended and departing.is_still_in(state):
        left_at_ms = context.leaving_ms(state)
        outcome = context.table.update(
            release_by_force(request.lock_name, departing, left_at_ms=left_at_ms)
        )
        if isinstance(outcome, Written):
            return _released(context, request, holder)
        state = read_state(outcome.item)
        if departing.left_before(state):
            return _released(context, request, holder)
        if not departing.is_still_in(state):
            if outcome.repeated:
                raise outcome_unknown(request.lock_name, REPLY_LOST)
            return None
        pause_or_give_up(context, request.lock_name, began=began, attempt=attempt)
        attempt += 1
    if hand_over(context, request.lock_name, state, departing=departing):
        return _released(context, request, holder)
    return None


def _holder_of(state: LockState, fencing_token: int) -> Holder | None:
    return next((h for h in state.holders if h.fencing_token == fencing_token), None)


def _mark(context: LockContext, request: ForceReleaseRequest) -> ForcedRelease:
    return ForcedRelease(
        fencing_token=request.fencing_token,
        at_ms=context.aws_clock.now_ms(),
        requested_by=request.requested_by,
        reason=request.reason,
    )


def _released_before(request: ForceReleaseRequest, state: LockState) -> Released | None:
    """The answer to a repeat whose first reply was lost; None if the grant ended otherwise."""
    last = state.last_forced_release
    if last is None or last.fencing_token != request.fencing_token:
        return None
    return Released(lock_name=request.lock_name, owner_id="", fencing_token=request.fencing_token)


def _released(context: LockContext, request: ForceReleaseRequest, holder: Holder) -> Released:
    held_ms = max(0, context.aws_clock.now_ms() - holder.acquired_at_ms)
    context.observe(
        ReleasedByForce(
            lock_name=request.lock_name,
            fencing_token=holder.fencing_token,
            owner_name=holder.owner_name,
            execution_arn=holder.execution_arn,
            held_ms=held_ms,
            requested_by=request.requested_by,
            reason=request.reason,
        )
    )
    return Released(
        lock_name=request.lock_name,
        owner_id=holder.owner_id,
        gave_back=True,
        held_ms=held_ms,
        fencing_token=holder.fencing_token,
        execution_arn=holder.execution_arn,
    )
