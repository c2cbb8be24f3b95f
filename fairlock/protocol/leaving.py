"""The next write when a holder leaves a contended lock, or a permit of one is free.

                  queue is empty           head waits, a permit for it    head waits, no permit
a holder departs  leave_without_successor  serve_waiter (its own)         leave_without_successor
none departs      close_queue              serve_waiter (a free one)      nothing to do

A queue that could not be read to its end is not empty, though nobody was found who waits: a holder
departs, and the lock stays contended.

The writes of a contended lock that a holder leaves, or of which a permit is free.

    departing holder             lock item                      waiter item
      │ oldest_waiters ─────────────────────────────────────▶ query
      │ serve_waiter ── one ──────▶ holder out, waiter in      ───▶ delete
      └ wake the waiter             condition: as it was seen       condition: it exists

A hand-off is one transaction, so that an owner who was granted leaves no waiter behind, and no
permit is handed to an owner who has been and gone.

The flag `contended` is removed by the caller that finds the queue empty, on condition that
`wait_seq` has not moved since the flag was seen: a waiter that joined in between keeps it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.departure import DepartingHolder, removal
from fairlock.protocol.expressions import (
    I_DO_NOT_HOLD,
    Transaction,
    Update,
    all_of,
    conditional_update,
    number,
)
from fairlock.protocol.items import SET_EXECUTIONS, new_holder, shared_executions
from fairlock.protocol.lease_time import stored_end_ms
from fairlock.protocol.limits import SET_LIMIT, may_enter_as_seen
from fairlock.protocol.model import Holder, LockState, Waiter
from fairlock.protocol.outcomes import Grant, HandOff
from fairlock.protocol.permits import RETAIN_ITEM, needs_longer_retention, retain_item
from fairlock.protocol.waiters import delete_waiter

_WAIT_SEQ_UNMOVED: Final = "#wait_seq = :wait_seq"


def serve_waiter(
    state: LockState,
    waiter: Waiter,
    departing: DepartingHolder | None,
    *,
    unless_joined: bool,
    left_at_ms: int,
    now_ms: int,
) -> tuple[Transaction, Holder]:
    """Give the permit of the departing holder, or a free one if there is none, to a waiter.

    With `unless_joined`, on condition that nobody has joined the queue since the state was seen.

    The state as seen has room for the waiter. A transaction returns nothing, so the token is chosen
    here, on condition that nobody was granted one since the state was seen.

    Returns:
        The transaction, and the holder that the waiter becomes by it.
    """
    request = waiter.request
    holder = waiter.as_holder(fencing_token=state.fencing_token + 1, now_ms=now_ms)
    leaving = removal(departing, left_at_ms=left_at_ms)
    executions = shared_executions(request, state)
    room = may_enter_as_seen(request.limit, state, [departing.holder] if departing else [])
    # The state as seen stands: `retain_until` moves only with a grant or with a longer retention.
    retain_long = request.execution_arn is not None or needs_longer_retention(state, now_ms=now_ms)
    update = conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change="SET #mine = :holder, #my_token = :token, #fencing_token = :token, "
        f"{SET_LIMIT}, {retain_item(long=retain_long)}{leaving.also_set}"
        f"{SET_EXECUTIONS if executions else ''}" + ("" if departing else " ADD #held :one"),
        condition=all_of(
            I_DO_NOT_HOLD, room.expression, *([_WAIT_SEQ_UNMOVED] if unless_joined else [])
        ),
        values={
            ":holder": new_holder(
                request, executions, now_ms=now_ms, expires_at_ms=holder.expires_at_ms
            ),
            ":executions": {"S": executions or ""},
            ":token": number(holder.fencing_token),
            ":wait_seq": number(state.wait_seq),
            **room.values,
        },
        removal=leaving,
        now_ms=now_ms,
    )
    return Transaction(state=update, other=delete_waiter(waiter)), holder


def leave_without_successor(
    lock_name: str,
    departing: DepartingHolder,
    *,
    waiters_limit: int | None,
    wait_seq: int,
    left_at_ms: int,
) -> Update:
    """Leave a lock of which more permits are out than the oldest waiter's limit allows.

    If that limit is None nobody waits, and the lock may be acquired again from now on: on condition
    that nobody joined the queue since `wait_seq` was seen.
    """
    leaving, condition = removal(departing, left_at_ms=left_at_ms), "#held > :limit"
    if waiters_limit is None:
        closing = {**leaving.names, "#contended": schema.CONTENDED}
        leaving, condition = replace(leaving, names=closing), _WAIT_SEQ_UNMOVED
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET #held = #held - :one, {RETAIN_ITEM}{leaving.also_set}",
        condition=condition,
        values={":limit": number(waiters_limit or 0), ":wait_seq": number(wait_seq)},
        removal=leaving,
        now_ms=left_at_ms,
    )


def close_queue(lock_name: str, *, wait_seq: int) -> Update:
    """Let a lock be acquired again for which nobody waits any more."""
    return conditional_update(
        schema.lock_key(lock_name),
        change="REMOVE #contended",
        condition=_WAIT_SEQ_UNMOVED,
        values={":wait_seq": number(wait_seq)},
    )


UNDELIVERED_MS: Final = 60_000
"""How long a grant stands of which nobody was there to be told: longer than the pause between two
questions of a waiter, a cold start included. Its own lease may be 12 h."""


def mark_undelivered(grant: Grant, *, now_ms: int) -> Update:
    """Mark a grant of which nobody was there to be told, and let it end soon.

    Refused if its owner has renewed since. An owner that asks later than that has its place back.

    And refused if the owner has another grant by now, whose first revision is the same.

    The owner may still ask again; or its branch of a running workflow was stopped, and never will.
    """
    return conditional_update(
        schema.lock_key(grant.lock_name),
        grant.owner_id,
        change="SET #mine.#h_undelivered = :yes, #mine.#h_expires_at_ms = :expires_at_ms",
        condition="#my_token = :seen_grant AND #mine.#h_revision = :one",
        values={
            ":seen_grant": number(grant.fencing_token),
            ":expires_at_ms": number(
                min(grant.expires_at_ms, stored_end_ms(now_ms, UNDELIVERED_MS))
            ),
        },
    )


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
        return _serve(
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


def _serve(
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
    transaction, holder = serve_waiter(
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
