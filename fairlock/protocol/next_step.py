"""The next write when a holder leaves a contended lock, or a permit of one is free.

                  queue is empty           head waits, a permit for it    head waits, no permit
a holder departs  leave_without_successor  hand_over_permit (its own)     leave_without_successor
none departs      close_queue              hand_over_permit (a free one)  nothing to do

A queue that could not be read to its end is not empty, though nobody was found who waits: a holder
departs, and the lock stays contended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlock.protocol.departure import DepartingHolder
from fairlock.protocol.hand_over import close_queue, hand_over_permit, leave_without_successor
from fairlock.protocol.holders import shared_executions
from fairlock.protocol.model import Grant, HandOff, LockState, Waiter
from fairlock.protocol.requests import Transaction, Update


@dataclass(frozen=True, slots=True)
class Step:
    """One write, and what it leads to if it happens.

    Attributes:
        after: the lock as it will then be, as far as is known.
        hand_off: the grant that it makes.
    """

    write: Update | Transaction
    after: LockState
    hand_off: HandOff | None = None


def next_step(
    lock_name: str,
    state: LockState,
    queue: Sequence[Waiter],
    departing: DepartingHolder | None,
    *,
    unread: bool = False,
    passed_over: bool = False,
    left_at_ms: int,
    now_ms: int,
) -> Step | None:
    """The next write on a lock seen in this state, its queue read after it; None if all is done.

    Args:
        lock_name: the lock.
        state: as it was seen.
        queue: the oldest waiters that still ask, in order.
        departing: the holder that leaves; None if there are only free permits to grant.
        unread: whether there is more of the queue than was read.
        passed_over: whether waiters were left out of `queue` because they did not ask in time.
        left_at_ms: the present at the latest, for what leaves.
        now_ms: by the clock of the caller.
    """
    remaining = _without(state, departing)
    if queue and remaining.has_room(queue[0].request.limit):
        return _hand_over(
            state,
            remaining,
            queue,
            departing,
            passed_over=passed_over,
            left_at_ms=left_at_ms,
            now_ms=now_ms,
        )
    if departing is not None:
        waiters_limit = 0 if unread else None
        update = leave_without_successor(
            lock_name,
            departing,
            waiters_limit=queue[0].request.limit if queue else waiters_limit,
            wait_seq=state.wait_seq,
            left_at_ms=left_at_ms,
        )
        return Step(update, replace(remaining, contended=bool(queue) or unread))
    if state.contended and not queue and not unread:
        update = close_queue(lock_name, wait_seq=state.wait_seq)
        return Step(update, replace(state, contended=False))
    return None


def _hand_over(
    state: LockState,
    remaining: LockState,
    queue: Sequence[Waiter],
    departing: DepartingHolder | None,
    *,
    passed_over: bool,
    left_at_ms: int,
    now_ms: int,
) -> Step:
    waiter = queue[0]
    limit = remaining.limit_for(waiter.request.limit)
    # A newcomer that joined since behind a waiter with a lower limit would be next, and nobody
    # would serve it. Beside a holder with a limit of 1 nobody is next: its release serves all.
    # And a waiter that was passed over may have asked again since: then it comes first.
    unless_joined = len(queue) == 1 and (limit > 1 or passed_over)
    transaction, holder = hand_over_permit(
        state,
        waiter,
        departing,
        unless_joined=unless_joined,
        left_at_ms=left_at_ms,
        now_ms=now_ms,
    )
    after = replace(
        remaining,
        limit=limit,
        executions=remaining.executions or shared_executions(waiter.request),
        fencing_token=holder.fencing_token,
        held=remaining.held + 1,
        holders=(*remaining.holders, holder),
    )
    grant = Grant.of(waiter.request.lock_name, holder)
    waited_ms = max(0, now_ms - waiter.entered_at_ms)
    return Step(transaction, after, HandOff(grant=grant, waiter=waiter, waited_ms=waited_ms))


def _without(state: LockState, departing: DepartingHolder | None) -> LockState:
    if departing is None:
        return state
    owner_id = departing.holder.owner_id
    holders = tuple(holder for holder in state.holders if holder.owner_id != owner_id)
    released = owner_id if departing.voluntary else state.last_released
    return replace(state, held=state.held - 1, holders=holders, last_released=released)
