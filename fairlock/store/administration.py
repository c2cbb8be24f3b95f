"""What operators do: end another's grant, limit or pause a lock, and see who holds and who waits.

A release by force names the grant by its fencing token, so it takes out the grant that was seen or
nothing. A heartbeat in between does not prevent it. The former holder learns of it as an evicted
one does; its claim, if it is a workflow, stays until it releases or is reaped.

A change of the ceiling (`protocol/ceiling.py`) that makes room for those who wait is made by the
first write of a hand-over, any other by a write of its own.

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
    describe_lock,
    is_state,
    lock_name_of,
    locks_of_the_table,
    waiters_to_show,
)
from fairlock.protocol.items import read_state, read_waiter
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
    gave_back,
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
        at_ms=context.now_ms(),
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
    released = gave_back(context, request.lock_name, holder)
    context.observe(
        ReleasedByForce(
            lock_name=request.lock_name,
            fencing_token=holder.fencing_token,
            owner_name=holder.owner_name,
            execution_arn=holder.execution_arn,
            held_ms=released.held_ms or 0,
            requested_by=request.requested_by,
            reason=request.reason,
        )
    )
    return released


def change_ceiling(context: LockContext, request: SetCeilingRequest) -> None:
    """Sets, changes or lifts the ceiling of a lock; once it returns, no grant goes above it.

    A read and a write; with a hand-off for each permit that becomes free for those who wait. Of two
    operators the later one wins.
    """
    began, name = context.retry_budget.clock.monotonic(), request.lock_name
    state = read_state(context.table.read(lock_key(name)))
    for attempt in count():
        change = CeilingChange.of(request, state, now_ms=context.now_ms())
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
    now_ms = context.now_ms()
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
    items = context.table.query_all(places(lock_name))
    waiting = [read_waiter(lock_name, item) for item in items]
    for first in range(0, len(waiting), MOST_DELETES):
        removed += remove_places(context, waiting[first : first + MOST_DELETES])
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
    waiters = (read_waiter(lock_name, each) for each in items)
    now_ms = context.now_ms()
    return describe_lock(lock_name, read_state(item), waiters, now_ms=now_ms)


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
            found = _describe(name, items, now_ms=context.now_ms())
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
    waiters = (read_waiter(name, item) for item in items)
    return describe_lock(name, state, waiters, now_ms=now_ms)
