"""Release: give the permit back, or leave the queue.

give back ──▶ written ───────────────────────────────────▶ released
     └──▶ condition failed, with the item as it was
            ├─ I hold, and others wait ─▶ hand over ─────▶ released
            ├─ I released last ──────────────────────────▶ released (again)
            ├─ I may be waiting ─▶ leave the queue, for good
            │      ├─ my waiter was there ───────────────▶ released (left the queue)
            │      └─ it was gone: perhaps granted ─▶ give back once more
            └─ none of it ───────────────────────────────▶ not held
"""

from __future__ import annotations

from leasehold.dynamodb.lock_table import Written
from leasehold.protocol.departure import DepartingHolder
from leasehold.protocol.holders import read_holder
from leasehold.protocol.items import read_state
from leasehold.protocol.model import (
    Holder,
    LockState,
    NotHeld,
    Released,
    ReleaseRequest,
    SeenLock,
)
from leasehold.protocol.permits import release_permit
from leasehold.protocol.queue import give_up, leave_queue, mark_released
from leasehold.protocol.schema import lock_key
from leasehold.store.claims import end_claim
from leasehold.store.context import LockContext
from leasehold.store.hand_over import REPLY_LOST, hand_over, outcome_unknown
from leasehold.store.queue import read_places


def release(
    context: LockContext,
    request: ReleaseRequest,
    *,
    is_queued: bool = True,
    seen: SeenLock | None = None,
) -> Released | NotHeld:
    """See `LockStore.release`. Unless `is_queued`, a waiter of the caller has been removed."""
    holder = None if seen is None else _only_holder(seen.state, request.owner_id)
    if seen is not None and holder is not None:
        departing = DepartingHolder(holder, voluntary=True)
        if hand_over(context, request.lock_name, seen.state, departing=departing, known=seen):
            return _gave_back(context, request, holder)
    answer, state = _release_permit(context, request)
    if answer is None and request.waits:
        answer = _stop_waiting(context, request, is_queued=is_queued)
    if answer is None and state.last_released == request.owner_id:
        answer = _released(request)
    return answer or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)


def _only_holder(seen: LockState, owner_id: str) -> Holder | None:
    """The owner as a holder, if it was the only one of a lock that others wait for.

    Beside other holders a hand-over by an outdated state would mostly fail: each grant moves the
    fencing token.
    """
    holder = seen.holder(owner_id)
    return holder if seen.contended and len(seen.holders) == 1 else None


def _release_permit(
    context: LockContext, request: ReleaseRequest
) -> tuple[Released | None, LockState]:
    """Takes the caller out of the lock; if it is no holder, returns the state that says so."""
    outcome = context.table.update(release_permit(request, now_ms=context.aws_clock.now_ms()))
    if isinstance(outcome, Written):
        if not request.tells_grant:
            return _released(request), LockState()
        holder = read_holder(outcome.item, request.owner_id)
        return _gave_back(context, request, holder), LockState()
    state = read_state(outcome.item)
    me = state.holder(request.owner_id)
    if me is None:
        may_have_left = outcome.repeated and not request.waits
        if may_have_left and state.last_released != request.owner_id:
            # The first sending gave the permit back, or others took it before: nobody can tell.
            raise outcome_unknown(request.lock_name, REPLY_LOST)
        return None, state
    departing = DepartingHolder(me, voluntary=True)
    if hand_over(context, request.lock_name, state, departing=departing):
        return _gave_back(context, request, me), state
    return None, state


def _stop_waiting(
    context: LockContext, request: ReleaseRequest, *, is_queued: bool
) -> Released | None:
    """Leaves the queue. If the waiter is gone, its owner was perhaps granted the lock just now.

    The answer is "released" also if there was neither: whatever this acquisition had, it has no
    more, and a repeated call gets the same answer.
    """
    # First of all: an acquire of ours that is still under way must not write its claim any more.
    entered_at_ms = request.ticket
    if request.execution_arn is not None:
        entered_at_ms = end_claim(context, request, request.execution_arn).entered_at_ms
    if is_queued and entered_at_ms is not None:
        leaving = give_up(request, entered_at_ms=entered_at_ms, now_ms=context.aws_clock.now_ms())
        outcome = context.table.transact(leaving)
        if isinstance(outcome, Written):
            state = read_state(context.table.read(lock_key(request.lock_name)))
            return _left_queue(context, request, state, was_waiting=True)
        if outcome.state is not None:
            return _release_permit(context, request)[0]
    # No waiter of ours was there. It may join in this moment, and be granted in the next.
    marked = context.table.update(mark_released(request, now_ms=context.aws_clock.now_ms()))
    if not isinstance(marked, Written):
        return _release_permit(context, request)[0]
    places = [] if entered_at_ms is None else [entered_at_ms]
    if is_queued and request.execution_arn is None:
        places += _other_places(context, request)
    left = [context.table.delete(leave_queue(request, entered_at_ms=place)) for place in places]
    was_waiting = any(left)
    if not was_waiting:
        answer, _ = _release_permit(context, request)
        if answer is not None:
            return answer
    return _left_queue(context, request, read_state(marked.item), was_waiting=was_waiting)


def _other_places(context: LockContext, request: ReleaseRequest) -> list[int]:
    """Where a direct caller waits, if the reply that told its ticket was lost."""
    places = read_places(context, request.lock_name)
    mine = (place.entered_at_ms for place in places if place.owner_id == request.owner_id)
    return [entered_at_ms for entered_at_ms in mine if entered_at_ms != request.ticket]


def _left_queue(
    context: LockContext, request: ReleaseRequest, state: LockState, *, was_waiting: bool
) -> Released:
    # The waiters behind us may have waited for our lower limit only.
    hand_over(context, request.lock_name, state)
    return Released(lock_name=request.lock_name, owner_id=request.owner_id, left_queue=was_waiting)


def _released(request: ReleaseRequest) -> Released:
    return Released(lock_name=request.lock_name, owner_id=request.owner_id)


def _gave_back(context: LockContext, request: ReleaseRequest, holder: Holder) -> Released:
    return Released(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        held_ms=max(0, context.aws_clock.now_ms() - holder.acquired_at_ms),
        fencing_token=holder.fencing_token,
        execution_arn=holder.execution_arn,
    )
