"""What operators do: end another's grant, limit or pause a lock, and see who holds and who waits.

A release by force:

read ─▶ the grant is there, no one waits ─▶ release_by_force ─▶ released
  │                       │                       └─ condition failed, with the item as it was ─┐
  │                       └─ others wait ─▶ hand over ─▶ released                                 │
  └─ it is not there ─▶ the lock has the mark of this very release ─▶ released (again)            │
                └─────▶ it has not ─▶ no such holder         (decided by that item)      ◀────────┘

The grant is named by its fencing token, so this takes out the grant that was seen or nothing. A
heartbeat in between does not prevent it. The former holder learns of it as an evicted one does; its
claim, if it is a workflow, stays until it releases or is reaped.

A change of the ceiling (`protocol/ceiling.py`):

read ─▶ it makes no room, or no one waits ─▶ set_ceiling, raise_ceiling ─▶ changed
  │                                              └─ condition failed, with the item as it was ─┐
  └─▶ it makes room for those who wait ─▶ hand over, the change by the first write ─▶ changed  │
                                              └─ another change came in between ─▶ read again ◀┘

No description is a snapshot. The queue is read before the holders, so that a waiter that is handed
the lock in between is seen as a holder; the other order would not show it at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, groupby

from fairlock.aws.lock_table import Written
from fairlock.errors import LockItemMalformed
from fairlock.protocol.ceiling import CeilingChange, SetCeilingRequest, raise_ceiling, set_ceiling
from fairlock.protocol.description import (
    LockDescription,
    QueueCount,
    describe_lock,
    is_state,
    lock_name_of,
    locks_of_the_table,
    waiters_to_show,
)
from fairlock.protocol.items import read_place, read_state, read_waiter
from fairlock.protocol.leaving import DepartingHolder, release_by_force
from fairlock.protocol.model import ForcedRelease, ForceReleaseRequest, Holder, LockState
from fairlock.protocol.outcomes import Released
from fairlock.protocol.schema import lock_key
from fairlock.protocol.table_requests import Item
from fairlock.protocol.waiters import MOST_DELETES, places
from fairlock.store.context import (
    CeilingChanged,
    LockContext,
    ReleasedByForce,
    leave,
    outcome_unknown,
    pause_or_give_up,
)
from fairlock.store.hand_off import REPLY_LOST, hand_over
from fairlock.store.queue import remove_places


def force_release(context: LockContext, request: ForceReleaseRequest) -> Released | None:
    """Takes out the holder of one grant, for the oldest waiter if there is one.

    Two requests if the queue is empty; three and a push if not. None if no holder has that grant:
    nothing was written. A repeat is answered "released" again, as long as no one else was released
    by force in between.

    Raises:
        LockStoreUnavailable: outcome unknown.
    """
    name, token = request.lock_name, request.fencing_token
    state = read_state(context.table.read(lock_key(name)))
    holder = next((h for h in state.holders if h.fencing_token == token), None)
    if holder is None:
        # A repeat whose first reply was lost, or the grant ended otherwise.
        last = state.last_forced_release
        is_repeat = last is not None and last.fencing_token == token
        return Released(lock_name=name, owner_id="", fencing_token=token) if is_repeat else None
    mark = ForcedRelease(
        fencing_token=token,
        at_ms=context.aws_clock.now_ms(),
        requested_by=request.requested_by,
        reason=request.reason,
    )
    departing = DepartingHolder(holder, voluntary=False, forced=mark)
    if not state.contended:
        outcome, state = leave(
            context,
            name,
            lambda left_at_ms: context.table.update(
                release_by_force(name, departing, left_at_ms=left_at_ms)
            ),
            may_leave=lambda seen: not seen.contended and departing.is_still_in(seen),
            seen=state,
        )
        if isinstance(outcome, Written) or departing.left_before(state):
            return _released(context, request, holder)
        if not departing.is_still_in(state):
            if outcome.repeated:
                raise outcome_unknown(name, REPLY_LOST)
            return None
    has_left = hand_over(context, name, state, departing=departing)
    return _released(context, request, holder) if has_left else None


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


def change_ceiling(context: LockContext, request: SetCeilingRequest) -> None:
    """Sets, changes or lifts the ceiling of a lock; once it returns, no grant goes above it.

    A read and a write; with a hand-off for each permit that becomes free for those who wait. Of two
    operators the later one wins. Lifting a ceiling that is not there refuses late copies of a
    change.

    Raises:
        LockStoreUnavailable: outcome unknown.
    """
    began, name = context.retry_budget.clock.monotonic(), request.lock_name
    state = read_state(context.table.read(lock_key(name)))
    for attempt in count():
        change = CeilingChange.of(request, state, now_ms=context.aws_clock.now_ms())
        found = _send_change(context, change, state)
        if found is None:
            context.observe(
                CeilingChanged(
                    lock_name=name,
                    ceiling=request.limit,
                    requested_by=request.requested_by,
                    reason=request.reason,
                )
            )
            return
        state = found
        pause_or_give_up(context, name, began=began, attempt=attempt)


def _send_change(context: LockContext, change: CeilingChange, state: LockState) -> LockState | None:
    """Makes the change, or returns the lock as it is if others were faster."""
    name, makes_room = change.lock_name, change.makes_room(state)
    if makes_room and state.contended:
        is_made = hand_over(context, name, state, departing=change)
        return None if is_made else read_state(context.table.read(lock_key(name)))
    now_ms = context.aws_clock.now_ms()
    update = set_ceiling(change, now_ms=now_ms)
    if makes_room:
        update = raise_ceiling(change, state, now_ms=now_ms)
    outcome = context.table.update(update)
    if isinstance(outcome, Written):
        return None
    found = read_state(outcome.item)
    if change.left_before(found):
        return None
    if outcome.repeated and not change.is_still_in(found):
        raise outcome_unknown(name, "the reply was lost, and others changed its ceiling since")
    return found


def empty_queue(context: LockContext, lock_name: str) -> int:
    """Removes all that wait, told or not; returns how many. Those that asked again just now stay.

    A read of the queue, a transaction for each 100 that wait, and two or three requests more.
    """
    removed = 0
    waiting = [read_place(item) for item in context.table.query_all(places(lock_name))]
    for first in range(0, len(waiting), MOST_DELETES):
        removed += remove_places(context, lock_name, waiting[first : first + MOST_DELETES])
    state = read_state(context.table.read(lock_key(lock_name)))
    if state.contended:
        # The mark of the queue goes too, or free permits go to those that have joined since.
        hand_over(context, lock_name, state)
    return removed


def describe(context: LockContext, lock_name: str) -> LockDescription | None:
    """Holders and waiters of a lock; None if the table knows no lock of this name.

    Two strongly consistent reads, and one more for each MB of waiters.
    """
    items = context.table.query_all(waiters_to_show(lock_name))
    item = context.table.read(lock_key(lock_name))
    if not item:
        return None
    state, now_ms = read_state(item), context.aws_clock.now_ms()
    waiters = _count(state, now_ms)
    for each in items:
        waiters.add(read_waiter(lock_name, each))
    return describe_lock(lock_name, state, waiters.queue(), now_ms=now_ms)


def list_locks(
    context: LockContext, prefix: str = "", *, after: str | None = None
) -> Iterator[LockDescription | LockItemMalformed]:
    """The locks whose names begin so, in no order; one request for each MB of the whole table.

    A lock whose items another program has changed comes as an error, and the others after it.
    `after` is the name of a lock that came before.
    """
    start = None if after is None else lock_key(after)
    for name, items in groupby(_items(context, prefix, start), key=lock_name_of):
        try:
            found = _describe(name, items, now_ms=context.aws_clock.now_ms())
        except LockItemMalformed as malformed:
            yield malformed
        else:
            if found is not None:
                yield found


def _items(context: LockContext, prefix: str, after: Item | None) -> Iterator[Item]:
    while True:
        page = context.table.scan(locks_of_the_table(prefix, after=after))
        yield from page.items
        after = page.next
        if after is None:
            return


def _describe(name: str, items: Iterator[Item], *, now_ms: int) -> LockDescription | None:
    """One lock from its items, of which the state comes first; None if that was removed by TTL."""
    state = next((read_state(item) for item in items if is_state(item)), None)
    if state is None:
        return None
    waiters = _count(state, now_ms)
    for item in items:
        waiters.add(read_waiter(name, item))
    return describe_lock(name, state, waiters.queue(), now_ms=now_ms)


def _count(state: LockState, now_ms: int) -> QueueCount:
    return QueueCount(holders=frozenset(h.owner_id for h in state.holders), now_ms=now_ms)
