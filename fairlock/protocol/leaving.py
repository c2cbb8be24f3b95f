"""Leaving: how a holder goes out, and who comes in by the same write.

A holder releases, is evicted because its lease is over, or is released by force. If others wait,
the next write is

                  queue is empty           head waits, a permit for it    head waits, no permit
a holder departs  leave_without_successor  serve_waiter (its own)         leave_without_successor
none departs      close_queue              serve_waiter (a free one)      nothing to do

A queue that was not read to its end is not empty: a holder departs, the lock stays contended.

The caller that finds the queue empty removes `contended` if `wait_seq` has not moved since it saw
the flag: a waiter that joined in between keeps it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlock.protocol import schema
from fairlock.protocol.admission import (
    LEFT_LAST,
    LEFT_NOW,
    MY_MARK,
    NOBODY_CAME_IN,
    NOT_SUPERSEDED,
    RETAIN_ITEM,
    SET_LIMIT,
    Unlearned,
    departure_times,
    eviction,
    mark_newest,
    may_enter_as_seen,
    may_not_enter,
    needs_longer_retention,
    retain_item,
)
from fairlock.protocol.ceiling import CeilingChange, raise_ceiling
from fairlock.protocol.items import (
    SET_EXECUTIONS,
    new_forced_release,
    new_holder,
    shared_executions,
)
from fairlock.protocol.model import ForcedRelease, Grant, Holder, LockState, ReleaseRequest, Waiter
from fairlock.protocol.outcomes import HandOff
from fairlock.protocol.schema import (
    I_DO_NOT_HOLD,
    I_HOLD,
    MY_GRANT,
    NOT_CONTENDED,
    WAIT_SEQ_UNMOVED,
    Condition,
    Removal,
    Values,
    all_of,
    conditional_update,
    number,
)
from fairlock.protocol.table_requests import Check, Transaction, Update
from fairlock.protocol.waiters import delete_waiter


@dataclass(frozen=True, slots=True)
class DepartingHolder:
    """A holder on its way out: it gives its permit back (`voluntary`), or is evicted.

    Attributes:
        forced: who releases it by force, and why. A heartbeat in between does not prevent that.
        unlearned: what its grant has set of which no one has learned, and this write puts back.
        check: what its departure depends on besides, in the same transaction.
    """

    holder: Holder
    voluntary: bool
    forced: ForcedRelease | None = None
    unlearned: Unlearned | None = None
    check: Check | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the write that takes the holder out leaves a mark of it in the lock."""
        return self.voluntary or self.forced is not None

    def is_still_in(self, state: LockState) -> bool:
        """Whether the holder is still there, and has not renewed if it is to be evicted."""
        holder = state.holder(self.holder.owner_id)
        if holder is None or holder.fencing_token != self.holder.fencing_token:
            return False
        return self.is_marked or holder.revision == self.holder.revision

    def left_before(self, state: LockState) -> bool:
        """Whether the mark of this very departure is there: it was written before."""
        if self.forced is not None:
            last = state.last_forced_release
            return last is not None and last.fencing_token == self.holder.fencing_token
        return self.voluntary and state.last_released == self.holder.owner_id


Departing = DepartingHolder | CeilingChange
"""What goes out by a write: a holder, or a ceiling that was in the way of waiters."""


def removal(departing: Departing | None, *, left_at_ms: int) -> Removal:
    """Removes what goes out, at `left_at_ms`; or nothing.

    A holder always on condition that its grant is the one that was seen: the owner_id alone would
    let a late copy of the write end a later grant of the same owner.
    """
    if departing is None:
        return Removal()
    if isinstance(departing, CeilingChange):
        return departing.part()
    if not departing.is_marked:
        found = eviction([departing.holder], left_at_ms=left_at_ms)
        put_back = departing.unlearned
        return replace(
            found,
            also_set=found.also_set + (", #newest = :before" if put_back else ""),
            conditions=(
                *found.conditions,
                "#over_token0 = :seen_grant",
                *([MY_MARK] if put_back else []),
            ),
            values={
                **found.values,
                ":seen_grant": number(departing.holder.fencing_token),
                ":before": number(put_back.before if put_back else 0),
            },
        )
    owner_id = departing.holder.owner_id
    names = {
        "#departing": schema.holder_attribute(owner_id),
        "#departing_token": schema.token_attribute(owner_id),
    }
    seen_grant = number(departing.holder.fencing_token)
    values: Values = {":seen_grant": seen_grant, **departure_times(left_at_ms)}
    if departing.forced is not None:
        # The mark of the last owner who released stays: this one has not, and must be told so.
        mark = "#last_forced_release = :forced"
        values[":forced"] = new_forced_release(departing.forced)
    else:
        mark = "#last_released = :departing"
        values[":departing"] = {"S": owner_id}
    return Removal(
        also_set=f", {LEFT_NOW}, {mark}",
        conditions=("#departing_token = :seen_grant", LEFT_LAST),
        names=names,
        values=values,
    )


def release_permit(request: ReleaseRequest, *, left_at_ms: int) -> Update:
    """Stop being a holder. Returns the item as it was, if the grant that ends is to be notified of.

    A caller that knows its fencing token ends that grant and no other.
    """
    token = request.fencing_token
    return conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET #held = #held - :one, #last_released = :me, {LEFT_NOW}, {RETAIN_ITEM} "
        "REMOVE #mine, #my_token",
        condition=all_of(I_HOLD if token is None else MY_GRANT, NOT_CONTENDED, LEFT_LAST),
        values={":seen_grant": number(token or 0), **departure_times(left_at_ms)},
        returns="ALL_OLD" if request.tells_grant else "NONE",
        now_ms=left_at_ms,
    )


def release_by_force(lock_name: str, departing: DepartingHolder, *, left_at_ms: int) -> Update:
    """Take out the holder of the grant that was seen, on a lock without waiters."""
    leaving = removal(departing, left_at_ms=left_at_ms)
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET #held = #held - :one, {RETAIN_ITEM}{leaving.also_set}",
        condition=NOT_CONTENDED,
        removal=leaving,
        now_ms=left_at_ms,
    )


def evict(lock_name: str, evictable: Sequence[Holder], *, now_ms: int, seen: LockState) -> Update:
    """Evict holders whose lease is over, for no one: more permits were out than a lower limit."""
    leaving = eviction(evictable, left_at_ms=seen.left_at_ms(now_ms))
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET {RETAIN_ITEM}{leaving.also_set} ADD #held :difference",
        condition=all_of(NOT_CONTENDED, NOBODY_CAME_IN),
        values={":difference": number(-len(evictable)), ":seen_token": number(seen.fencing_token)},
        removal=leaving,
        now_ms=now_ms,
    )


def serve_waiter(
    state: LockState,
    waiter: Waiter,
    departing: Departing | None,
    *,
    unless_joined: bool,
    now_ms: int,
) -> tuple[Transaction, Holder]:
    """Give the permit of the departing holder, or a free one if no holder departs, to a waiter.

    With `unless_joined`, on condition that no one has joined the queue since the state was seen,
    which has room for the waiter. A transaction returns nothing, so the token is chosen here, on
    condition that none was granted since. Returns the holder that the waiter becomes, too.
    """
    request, version = waiter.request, waiter.request.only_newest
    holder = waiter.as_holder(fencing_token=state.fencing_token + 1, now_ms=now_ms)
    leaver = departing if isinstance(departing, DepartingHolder) else None
    put_back = leaver.unlearned if leaver else None
    mark = f", {mark_newest(':token')}" if waiter.marks_newest else ""
    if leaver and put_back and mark:
        # What is put back is the version of this waiter.
        departing = replace(leaver, unlearned=replace(put_back, before=version or 0))
        mark = ", #newest_token = :token"
    leaving = removal(departing, left_at_ms=state.left_at_ms(now_ms))
    if isinstance(departing, CeilingChange):
        leaving, state = departing.part(state), departing.made(state)
    executions = shared_executions(request, state)
    room = may_enter_as_seen(request.limit, state, [leaver.holder] if leaver else [])
    # The state as seen stands: `retain_until` moves only with a grant or with a longer retention,
    # and with a ceiling, which retains the item for as long as it stands.
    retain_long = state.ceiling is None and (
        isinstance(departing, CeilingChange)
        or request.execution_arn is not None
        or needs_longer_retention(state, now_ms=now_ms)
    )
    update = conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change="SET #mine = :holder, #my_token = :token, #fencing_token = :token, "
        f"{SET_LIMIT}, {retain_item(long=retain_long)}{leaving.also_set}"
        f"{mark}{SET_EXECUTIONS if executions else ''}" + ("" if leaver else " ADD #held :one"),
        condition=all_of(
            I_DO_NOT_HOLD,
            room.expression,  # no permit was granted since: so the limits and the token stand, too
            *([WAIT_SEQ_UNMOVED] if unless_joined else []),
            *([] if version is None or put_back else [NOT_SUPERSEDED]),
        ),
        values={
            ":holder": new_holder(holder, executions),
            ":executions": {"S": executions or ""},
            ":token": number(holder.fencing_token),
            ":wait_seq": number(state.wait_seq),
            ":version": number(version or 0),
            **room.values,
        },
        removal=leaving,  # on condition of this very grant of the departing holder
        now_ms=now_ms,
    )
    # And on condition that the waiter's item is as it was seen: its task token may have changed.
    check = leaver.check if leaver else None
    return Transaction(state=update, other=delete_waiter(waiter), check=check), holder


def leave_without_successor(
    lock_name: str,
    departing: DepartingHolder,
    *,
    waiters_limit: int | None,
    remaining: LockState,
    left_at_ms: int,
) -> Update:
    """Leave a lock of which more permits are out than the oldest waiter's limit allows.

    If that limit is None no one waits, and the lock may be acquired again from now on: on condition
    that no one joined the queue since the lock was seen, which `remaining` shows without the
    holder. If only a ceiling is in the waiter's way, it must be as it was seen.
    """
    leaving = removal(departing, left_at_ms=left_at_ms)
    condition = may_not_enter(waiters_limit or 0, remaining, held="#held >")
    if waiters_limit is None:
        closing = {**leaving.names, "#contended": schema.CONTENDED}
        leaving = replace(leaving, names=closing)
        condition = Condition(WAIT_SEQ_UNMOVED, {":wait_seq": number(remaining.wait_seq)})
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET #held = #held - :one, {RETAIN_ITEM}{leaving.also_set}",
        condition=condition.expression,
        values=condition.values,
        removal=leaving,
        now_ms=left_at_ms,
    )


def close_queue(lock_name: str, *, wait_seq: int) -> Update:
    """Let a lock be acquired again for which no one waits any more."""
    return conditional_update(
        schema.lock_key(lock_name),
        change="REMOVE #contended",
        condition=WAIT_SEQ_UNMOVED,
        values={":wait_seq": number(wait_seq)},
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One write, the lock as it will be then, as far as is known, and the grant that it makes."""

    write: Update | Transaction
    after: LockState
    hand_off: HandOff | None = None


def next_step(
    lock_name: str,
    state: LockState,
    queue: Sequence[Waiter],
    departing: Departing | None,
    *,
    unread: bool = False,
    passed_over: bool = False,
    now_ms: int,
) -> Step | None:
    """The next write on a lock seen in this state, its queue read after it; None if all is done.

    The queue is the oldest waiters that still ask. More of it may be `unread`, and waiters that did
    not ask in time `passed_over`.
    """
    remaining = _without(state, departing)
    if queue and remaining.has_room(queue[0].request.limit):
        waiter = queue[0]
        # A newcomer that joined since behind a waiter with a lower limit would be next, and no one
        # would serve it. Beside a holder with a limit of 1 no one is next: its release serves all.
        # And a waiter that was passed over may have asked again since: then it comes first.
        is_next_unknown = remaining.limit_for(waiter.request.limit) > 1 or passed_over
        transaction, holder = serve_waiter(
            state,
            waiter,
            departing,
            unless_joined=len(queue) == 1 and is_next_unknown,
            now_ms=now_ms,
        )
        grant = Grant.of(lock_name, holder)
        waited_ms = max(0, now_ms - waiter.entered_at_ms)
        hand_off = HandOff(grant=grant, waiter=waiter, waited_ms=waited_ms)
        return Step(transaction, _with(remaining, waiter, holder), hand_off)
    if isinstance(departing, CeilingChange):
        return Step(raise_ceiling(departing, state, now_ms=now_ms), remaining)
    if departing is not None:
        waiters_limit = 0 if unread else None
        update = leave_without_successor(
            lock_name,
            departing,
            waiters_limit=queue[0].request.limit if queue else waiters_limit,
            remaining=remaining,
            left_at_ms=state.left_at_ms(now_ms),
        )
        write = Transaction(state=update, other=departing.check) if departing.check else update
        return Step(write, replace(remaining, contended=bool(queue) or unread))
    if state.contended and not queue and not unread:
        update = close_queue(lock_name, wait_seq=state.wait_seq)
        return Step(update, replace(state, contended=False))
    return None


def _with(state: LockState, waiter: Waiter, holder: Holder) -> LockState:
    """The lock once this waiter has come in as this holder."""
    return replace(
        state,
        limit=state.limit_for(holder.limit),
        executions=state.executions or shared_executions(waiter.request),
        fencing_token=holder.fencing_token,
        held=state.held + 1,
        newest=waiter.request.only_newest if waiter.marks_newest else state.newest,
        newest_token=holder.fencing_token if waiter.marks_newest else state.newest_token,
        holders=(*state.holders, holder),
    )


def _without(state: LockState, departing: Departing | None) -> LockState:
    if departing is None:
        return state
    if isinstance(departing, CeilingChange):
        return departing.made(state)
    owner_id = departing.holder.owner_id
    return replace(
        state.without(owner_id),
        held=state.held - 1,
        last_released=owner_id if departing.voluntary else state.last_released,
        # As the same write puts it back: else the next waiter would be judged by a version that no
        # one has learned of, and be left out.
        newest=departing.unlearned.before if departing.unlearned else state.newest,
    )
