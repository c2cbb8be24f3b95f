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
    NO_GRANT_SINCE,
    RETAIN_ITEM,
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
from fairlock.protocol.items import come_in, new_forced_release, shared_executions
from fairlock.protocol.model import ForcedRelease, Grant, Holder, LockState, ReleaseRequest, Waiter
from fairlock.protocol.outcomes import HandOff
from fairlock.protocol.schema import (
    I_DO_NOT_HOLD,
    I_HOLD,
    MY_GRANT,
    NOT_CONTENDED,
    WAIT_SEQ_UNMOVED,
    Part,
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


def removal(departing: Departing | None, *, left_at_ms: int) -> list[Part]:
    """Removes what goes out, at `left_at_ms`; or nothing.

    A holder always on condition that its grant is the one that was seen: the owner_id alone would
    let a late copy of the write end a later grant of the same owner.
    """
    if departing is None:
        return []
    if isinstance(departing, CeilingChange):
        return [departing.part()]
    holder = departing.holder
    seen_grant: Values = {":seen_grant": number(holder.fencing_token)}
    if not departing.is_marked:
        found = [
            eviction([holder], left_at_ms=left_at_ms),
            Part("#over_token0 = :seen_grant", seen_grant),
        ]
        return [*found, departing.unlearned.put_back()] if departing.unlearned else found
    if departing.forced is not None:
        # The mark of the last owner who released stays: this one has not, and must be told so.
        mark = "#last_forced_release = :forced"
        seen_grant[":forced"] = new_forced_release(departing.forced)
    else:
        mark = "#last_released = :departing"
        seen_grant[":departing"] = {"S": holder.owner_id}
    part = Part(
        all_of("#departing_token = :seen_grant", LEFT_LAST),
        {**seen_grant, **departure_times(left_at_ms)},
        sets=f"{LEFT_NOW}, {mark}",
        removes={
            "#departing": schema.holder_attribute(holder.owner_id),
            "#departing_token": schema.token_attribute(holder.owner_id),
        },
    )
    return [part]


def release_permit(request: ReleaseRequest, *, left_at_ms: int) -> Update:
    """Stop being a holder. Returns the item as it was, if the grant that ends is to be notified of.

    A caller that knows its fencing token ends that grant and no other.
    """
    token, owner_id = request.fencing_token, request.owner_id
    part = Part(
        all_of(I_HOLD if token is None else MY_GRANT, NOT_CONTENDED, LEFT_LAST),
        {":seen_grant": number(token or 0), **departure_times(left_at_ms)},
        sets=f"#held = #held - :one, #last_released = :me, {LEFT_NOW}, {RETAIN_ITEM}",
        removes={
            "#mine": schema.holder_attribute(owner_id),
            "#my_token": schema.token_attribute(owner_id),
        },
    )
    return conditional_update(
        schema.lock_key(request.lock_name),
        part,
        owner_id=owner_id,
        returns="ALL_OLD" if request.tells_grant else "NONE",
        now_ms=left_at_ms,
    )


def release_by_force(lock_name: str, departing: DepartingHolder, *, left_at_ms: int) -> Update:
    """Take out the holder of the grant that was seen, on a lock without waiters."""
    return conditional_update(
        schema.lock_key(lock_name),
        Part(NOT_CONTENDED, sets=f"#held = #held - :one, {RETAIN_ITEM}"),
        *removal(departing, left_at_ms=left_at_ms),
        now_ms=left_at_ms,
    )


def evict(lock_name: str, evictable: Sequence[Holder], *, now_ms: int, seen: LockState) -> Update:
    """Evict holders whose lease is over, for no one: more permits were out than a lower limit."""
    values = {":difference": number(-len(evictable)), ":seen_token": number(seen.fencing_token)}
    return conditional_update(
        schema.lock_key(lock_name),
        NOT_CONTENDED,
        NO_GRANT_SINCE,
        Part(values=values, sets=RETAIN_ITEM, adds="#held :difference"),
        eviction(evictable, left_at_ms=seen.left_at_ms(now_ms)),
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
    newest = Part() if version is None else mark_newest(version, ":token")
    if not waiter.marks_newest:
        newest = replace(newest, sets="")
    if leaver and put_back:
        # What is put back is the version of this waiter, if it marks one.
        newest = Part()
        if waiter.marks_newest:
            departing = replace(leaver, unlearned=replace(put_back, before=version or 0))
            newest = Part(sets="#newest_token = :token")
    leaving = removal(departing, left_at_ms=state.left_at_ms(now_ms))
    if isinstance(departing, CeilingChange):
        leaving, state = [departing.part(state)], departing.made(state)
    # The state as seen stands: `retain_until` moves only with a grant or with a longer retention,
    # and with a ceiling, which retains the item for as long as it stands.
    retain_long = state.ceiling is None and (
        isinstance(departing, CeilingChange)
        or request.execution_arn is not None
        or needs_longer_retention(state, now_ms=now_ms)
    )
    update = conditional_update(
        schema.lock_key(request.lock_name),
        I_DO_NOT_HOLD,
        # No permit was granted since: so the limits and the token stand, too.
        may_enter_as_seen(request.limit, state, [leaver.holder] if leaver else []),
        Part(WAIT_SEQ_UNMOVED if unless_joined else "", {":wait_seq": number(state.wait_seq)}),
        come_in(holder, ":token", shared_executions(request, state)),
        Part(
            values={":token": number(holder.fencing_token)},
            sets=retain_item(long=retain_long),
            adds="" if leaver else "#held :one",
        ),
        *leaving,  # on condition of this very grant of the departing holder
        newest,
        owner_id=request.owner_id,
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
    room = may_not_enter(waiters_limit or 0, remaining, held="#held >")
    if waiters_limit is None:
        room = Part(WAIT_SEQ_UNMOVED, {":wait_seq": number(remaining.wait_seq)})
    return conditional_update(
        schema.lock_key(lock_name),
        room,
        Part(sets=f"#held = #held - :one, {RETAIN_ITEM}"),
        *removal(departing, left_at_ms=left_at_ms),
        Part(removes={"#contended": schema.CONTENDED} if waiters_limit is None else {}),
        now_ms=left_at_ms,
    )


def close_queue(lock_name: str, *, wait_seq: int) -> Update:
    """Let a lock be acquired again for which no one waits any more."""
    values = {":wait_seq": number(wait_seq)}
    part = Part(WAIT_SEQ_UNMOVED, values, removes={"#contended": schema.CONTENDED})
    return conditional_update(schema.lock_key(lock_name), part)


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
