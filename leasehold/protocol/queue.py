"""The writes and reads of the queue: joining it, leaving it, and finding its oldest waiters.

    waiter                       lock item                      waiter item
      │ join_queue ─── one ──▶ contended, wait_seq + 1     ───▶ put
      │                          condition: permits are out
      ┊ (sleeps, until `hand_over_permit`)

Joining is one transaction, as handing over is, so that at any time: a waiter item exists only while
the lock is contended, and its owner is not a holder. From this follows all the rest. Acquiring a
free permit needs a lock that is not contended, so nobody overtakes the queue.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from leasehold.protocol import schema
from leasehold.protocol.expressions import (
    I_DO_NOT_HOLD,
    NOT_RELEASED_BY_ME,
    all_of,
    conditional_update,
    names_in,
    number,
)
from leasehold.protocol.items import new_waiter
from leasehold.protocol.limits import may_not_enter
from leasehold.protocol.model import LockState, ReleaseRequest, Waiter
from leasehold.protocol.requests import Delete, Put, Query, Transaction, Update
from leasehold.protocol.retention import RETAIN_ITEM

MOST_WAITERS_SEEN: Final = 10


def join_queue(waiter: Waiter, seen: LockState, *, behind_others: bool, now_ms: int) -> Transaction:
    """Enter the queue, or keep the place in it with a new task token.

    Only while all permits are out, by the waiter's own limit or by those of the holders that were
    seen; or, `behind_others`, while a permit is free that does not help, because a waiter with a
    lower limit came first.
    """
    request, no_permit = waiter.request, may_not_enter(waiter.request.limit, seen)
    state = conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET #contended = :yes, {RETAIN_ITEM} ADD #wait_seq :one",
        condition=all_of(
            I_DO_NOT_HOLD,
            NOT_RELEASED_BY_ME,
            f"({no_permit.expression} OR #contended = :yes)"
            if behind_others
            else no_permit.expression,
        ),
        values=no_permit.values,
        now_ms=now_ms,
    )
    return Transaction(state=state, other=Put(item=new_waiter(waiter, now_ms=now_ms)))


def oldest_waiters(lock_name: str) -> Query:
    """The head of the queue."""
    condition = "#pk = :pk AND begins_with(#sk, :prefix)"
    return Query(
        condition=condition,
        names=names_in(condition),
        values={
            ":pk": {"S": schema.partition_of(lock_name)},
            ":prefix": {"S": schema.WAITER_PREFIX},
        },
        most=MOST_WAITERS_SEEN,
    )


def waiters_of(lock_name: str, owner_id: str) -> Query:
    """The places of one owner in the queue: one, unless it entered twice."""
    query, only = oldest_waiters(lock_name), "#owner_id = :me"
    return replace(
        query,
        names=names_in(f"{query.condition} {only}"),
        values={**query.values, ":me": {"S": owner_id}},
        only=only,
        most=None,
    )


def waiters_up_to(waiter: Waiter) -> Query:
    """The queue from its head to this waiter; their number is the waiter's position."""
    condition = "#pk = :pk AND #sk BETWEEN :prefix AND :me"
    return Query(
        condition=condition,
        names=names_in(condition),
        values={
            ":pk": waiter.key[schema.PARTITION_KEY],
            ":prefix": {"S": schema.WAITER_PREFIX},
            ":me": waiter.key[schema.SORT_KEY],
        },
    )


def delete_waiter(waiter: Waiter) -> Delete:
    """Remove a waiter's item, unless the waiter has asked again since it was seen.

    Then its end has moved, and perhaps its task token: a grant sent to the old token would never
    reach it.
    """
    condition = "#expires_at_ms = :seen_expires_at_ms"
    return Delete(
        key=waiter.key,
        condition=condition,
        names=names_in(condition),
        values={":seen_expires_at_ms": number(waiter.expires_at_ms)},
    )


def leave_queue(request: ReleaseRequest, *, entered_at_ms: int) -> Delete:
    """Remove the waiter of this acquisition."""
    condition = "#owner_id = :me"
    return Delete(
        key=schema.waiter_key(
            request.lock_name, entered_at_ms=entered_at_ms, owner_id=request.owner_id
        ),
        condition=condition,
        names=names_in(condition),
        values={":me": {"S": request.owner_id}},
    )


def mark_released(request: ReleaseRequest, *, now_ms: int) -> Update:
    """Remember the owner that gave up, so that a delayed acquire of its own is refused."""
    return conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET #last_released = :me, {RETAIN_ITEM}",
        condition=I_DO_NOT_HOLD,
        now_ms=now_ms,
    )


def give_up(request: ReleaseRequest, *, entered_at_ms: int, now_ms: int) -> Transaction:
    """Leave the queue for good: no acquire of this owner that is under way may succeed or join."""
    return Transaction(
        state=mark_released(request, now_ms=now_ms),
        other=leave_queue(request, entered_at_ms=entered_at_ms),
    )
