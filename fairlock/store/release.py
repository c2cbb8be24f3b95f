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

from dataclasses import replace

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol.claims import (
    Claim,
    claim_of,
    forget_claim,
    gave_back_before,
    mark_done,
    mark_ended,
)
from fairlock.protocol.items import number_in, read_holder, read_state, text_in
from fairlock.protocol.leaving import DepartingHolder, release_permit
from fairlock.protocol.model import Holder, LockState, ReleaseRequest, SeenLock
from fairlock.protocol.outcomes import NotHeld, Released
from fairlock.protocol.schema import ENTERED_AT_MS, TASK_TOKEN, lock_key
from fairlock.protocol.table_requests import Check, Transaction
from fairlock.protocol.waiters import give_up, leave_queue, mark_given_up
from fairlock.store.context import ClaimNotRemoved, LockContext, gave_back, leave, outcome_unknown
from fairlock.store.hand_off import REPLY_LOST, hand_over
from fairlock.store.queue import read_places


def release(
    context: LockContext, request: ReleaseRequest, *, seen: SeenLock | None = None
) -> Released | NotHeld:
    """Gives the permit back if the caller has it, to the oldest waiter if there is one.

    One request if the queue is empty; three and a push if not, however many. One more, after, for
    the claim of a workflow; and one more, before, if that sends heartbeats. A repeat is answered
    "released" as long as no one else released in between; that of a workflow for an hour in any
    case.

    The lock may be given as it was `seen` since its grant to this owner: then one or two of the
    three requests are left out. An outdated state costs requests. Outdated waiters may cost one
    that has come since, with an older place, its precedence: name those that were seen just now.
    """
    if request.keep_alive and request.execution_arn is not None:
        # The claim first: a heartbeat that finds the lock gone, and no end in the claim, reports a
        # loss. If this process dies in between, the lock is freed by a repeat or by the reaper.
        task_token = end_claim(context, request, request.execution_arn).task_token
        answer = give_back(context, request)
        # After the lock is free: what comes next in the workflow may ask for it again.
        if task_token is not None:
            context.workflows.end_heartbeat(task_token, answer)
    else:
        answer = give_back(context, request, seen=seen)
    # Last: a claim without a lock costs the reaper a look, a lock without one only its lease ends.
    return _close_claim(context, request, answer)


def give_back(
    context: LockContext,
    request: ReleaseRequest,
    *,
    is_queued: bool = True,
    seen: SeenLock | None = None,
    check: Check | None = None,
) -> Released | NotHeld:
    """A release that leaves the claim to its caller.

    No waiter of the caller is there if it is not `is_queued`: the reaper has removed it. The
    `check` is what the release depends on besides, in the same transaction.
    """
    # By what was seen before: the write is refused if it is outdated, and then the usual way
    # follows. Beside other holders, what was seen is mostly old.
    if seen is not None and seen.state.contended and len(seen.state.holders) == 1:
        holder = _granted(seen.state, request)
        departing = None if holder is None else DepartingHolder(holder, voluntary=True)
        if departing is not None and hand_over(
            context, request.lock_name, seen.state, departing=departing, known=seen
        ):
            return gave_back(context, request.lock_name, departing.holder)
    answer, state = _release_permit(context, request, check)
    # No holder: but it may wait, and be handed the lock in the very next moment.
    if answer is None and request.waits:
        answer = _stop_waiting(context, request, check=check, is_queued=is_queued)
    # A repeat whose first reply was lost. The mark says who left last, so it holds until others
    # leave.
    if answer is None and state.has_left(request.owner_id):
        answer = _released(request)
    return answer or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)


def _close_claim(
    context: LockContext, request: ReleaseRequest, answer: Released | NotHeld
) -> Released | NotHeld:
    """Marks the claim of an acquisition as done, or removes it; never fails, as the lock is free.

    Returns the answer: "released" for a repeat if the claim says so, though others have used the
    lock since. The claim of an owner that gave up waiting stays: an acquire may still be under way.
    """
    gave_back = isinstance(answer, Released) and answer.gave_back
    if request.waits and not gave_back:
        return answer
    execution_arn = request.execution_arn
    if execution_arn is None and isinstance(answer, Released):
        execution_arn = answer.execution_arn
    if execution_arn is None:
        return answer
    claim = claim_of(request, execution_arn)
    try:
        if request.execution_arn is None:
            # Perhaps a stranger released it: then the workflow's heartbeats must report a loss.
            context.table.delete(forget_claim(claim))
        else:
            now_ms, is_released = context.now_ms(), isinstance(answer, Released)
            kept = request.keep_alive
            update = mark_done(claim, gave_back=is_released, kept_alive=kept, now_ms=now_ms)
            marked = context.table.update(update)
            if isinstance(marked, Written) and gave_back_before(marked.item) and not is_released:
                return _released(request)
    except (LockStoreUnavailable, LockStoreMisconfigured):
        # A client of a prefix may not write claims (`LockService.grant_client`).
        context.observe(ClaimNotRemoved(lock_name=request.lock_name, execution_arn=execution_arn))
    return answer


def end_claim(context: LockContext, request: ReleaseRequest, execution_arn: str) -> Claim:
    """Marks the claim as ended, before the lock is freed or the queue is left.

    From now on no heartbeat takes the absence of the lock for a loss, and no acquire of this owner
    writes the claim again.
    """
    claim = claim_of(request, execution_arn)
    now_ms = context.now_ms()
    outcome = context.table.update(mark_ended(claim, waits=request.waits, now_ms=now_ms))
    # No more than is used: a claim that a person has edited must not keep the lock taken.
    return replace(
        claim,
        task_token=text_in(outcome.item, TASK_TOKEN),
        entered_at_ms=number_in(outcome.item, ENTERED_AT_MS),
    )


def _release_permit(
    context: LockContext, request: ReleaseRequest, check: Check | None = None
) -> tuple[Released | None, LockState]:
    """Takes the caller out of the lock; if it is no holder, returns the state that says so.

    None as well if what the release depends on (`check`) no longer holds.
    """

    def send(left_at_ms: int) -> Released | ConditionFailed | None:
        departure = release_permit(request, left_at_ms=left_at_ms)
        if check is not None:
            result = context.table.transact(Transaction(state=departure, other=check))
            if isinstance(result, Written):
                return _released(request, gave_back=True)
            return None if result.elsewhere else result
        outcome = context.table.update(departure)
        if isinstance(outcome, ConditionFailed):
            return outcome
        if not request.tells_grant:
            return _released(request, gave_back=True)
        return gave_back(context, request.lock_name, read_holder(outcome.item, request.owner_id))

    def holds_alone(state: LockState) -> bool:
        return _granted(state, request) is not None and not state.contended

    outcome, state = leave(context, request.lock_name, send, may_leave=holds_alone)
    if not isinstance(outcome, ConditionFailed):
        return outcome, state
    # Refused because it does not hold, or because others wait: the state tells which.
    me = _granted(state, request)
    if me is None:
        _require_known(request, state, outcome)
        return None, state
    # Others wait: the permit is the oldest waiter's in the very write that takes it from us.
    departing = DepartingHolder(me, voluntary=True, check=check)
    has_left = hand_over(context, request.lock_name, state, departing=departing)
    return (gave_back(context, request.lock_name, me) if has_left else None), state


def _require_known(request: ReleaseRequest, state: LockState, outcome: ConditionFailed) -> None:
    """Raises if the first sending gave the permit back, or others took it before: nothing tells."""
    may_have_left = outcome.repeated and not request.waits
    if may_have_left and state.last_released != request.owner_id:
        raise outcome_unknown(request.lock_name, REPLY_LOST)


def _stop_waiting(
    context: LockContext, request: ReleaseRequest, *, check: Check | None, is_queued: bool
) -> Released | None:
    """Leaves the queue. If the waiter is gone, its owner was perhaps granted the lock just now.

    The answer is "released" even if there was neither: whatever this acquisition had, it has no
    more, and a repeated call gets the same answer.
    """
    # First of all: an acquire of ours that is still under way must not write its claim any more.
    entered_at_ms = request.ticket
    if request.execution_arn is not None:
        entered_at_ms = end_claim(context, request, request.execution_arn).entered_at_ms
    place = entered_at_ms if is_queued else None

    def give_up_waiting(left_at_ms: int) -> Written | ConditionFailed:
        nonlocal place
        if place is not None:
            # The mark and the waiter go in one transaction, so a hand-off comes before both or
            # finds neither.
            leaving = give_up(request, entered_at_ms=place, left_at_ms=left_at_ms)
            outcome = context.table.transact(leaving)
            if isinstance(outcome, Written):
                return outcome
            if not outcome.elsewhere:
                return outcome
            place = None  # No waiter of ours was there. It may join in this moment, and be granted.
        return context.table.update(mark_given_up(request, left_at_ms=left_at_ms))

    left, _ = leave(
        context,
        request.lock_name,
        give_up_waiting,
        may_leave=lambda state: state.holder(request.owner_id) is None,
    )
    if isinstance(left, ConditionFailed):
        # Handed over while we were leaving: a transaction moved us from the queue to the holders.
        return _release_permit(context, request, check)[0]
    was_waiting = place is not None
    if was_waiting:
        state = read_state(context.table.read(lock_key(request.lock_name)))
    else:
        state = read_state(left.item)
        was_waiting = _remove_waiters(context, request, entered_at_ms, is_queued=is_queued)
        # No waiter was there: a hand-off may have taken it in between, and that grant is ours to
        # give back.
        answer = None if was_waiting else _release_permit(context, request, check)[0]
        if answer is not None:
            return answer
    # The waiters behind us may have waited for our lower limit only.
    hand_over(context, request.lock_name, state)
    return Released(lock_name=request.lock_name, owner_id=request.owner_id, left_queue=was_waiting)


def _remove_waiters(
    context: LockContext, request: ReleaseRequest, entered_at_ms: int | None, *, is_queued: bool
) -> bool:
    """Removes the waiters of an owner that is marked as gone; tells whether there were any."""
    places = [] if entered_at_ms is None else [entered_at_ms]
    if is_queued and request.execution_arn is None:
        # Where a direct caller waits, if the reply that told its ticket was lost.
        waiting, _ = read_places(context, request.lock_name)
        mine = (waiter.entered_at_ms for waiter in waiting if waiter.owner_id == request.owner_id)
        places += [place for place in mine if place != request.ticket]
    left = [context.table.delete(leave_queue(request, entered_at_ms=place)) for place in places]
    return any(left)


def _granted(state: LockState, request: ReleaseRequest) -> Holder | None:
    """The grant that the request is to end, if it is there."""
    holder, token = state.holder(request.owner_id), request.fencing_token
    return holder if holder and token in (None, holder.fencing_token) else None


def _released(request: ReleaseRequest, *, gave_back: bool = False) -> Released:
    return Released(lock_name=request.lock_name, owner_id=request.owner_id, gave_back=gave_back)
