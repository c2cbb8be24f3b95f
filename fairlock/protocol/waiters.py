"""The writes and reads of the queue: joining it, leaving it, and finding its oldest waiters.

Joining is one transaction, as handing over is, so that at any time: a waiter item exists only while
the lock is contended, and its owner is not a holder. `confirm_join` writes once more, because a
query beside a transaction may see only a part of it (docs/protocol.md, With waiters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.admission import (
    LEFT_LAST_OF_ALL,
    LEFT_NOW,
    RETAIN_ITEM,
    departure_times,
    may_not_enter,
    not_outdated,
)
from fairlock.protocol.items import new_waiter
from fairlock.protocol.model import AcquireRequest, LockState, ReleaseRequest, Waiter
from fairlock.protocol.schema import (
    I_DO_NOT_HOLD,
    NOT_RELEASED_BY_ME,
    Part,
    conditional_update,
    names_in,
    number,
)
from fairlock.protocol.table_requests import Delete, Item, Put, Query, Transaction, Update

MOST_WAITERS_SEEN: Final = 10
MOST_WAITERS_POLLED: Final = 2
"""So few that a poll mostly costs no more than to read the lock alone."""
MOST_WAITERS: Final = 1_000
"""Waiters that still ask; no one joins behind so many."""
MOST_PLACES_OF_AN_EXECUTION: Final = 100
"""More than a Map runs at a time. Further ones ask again, so one execution, or a caller that names
one, cannot fill a queue by itself."""
MOST_PAGES_READ: Final = 2
"""Pages of 1 MB, 256 read units each, that a caller reads to count who waits. No one joins a longer
queue: a waiter can be 6 KB large, so a bound on their number alone would not bound a call's cost.
"""
MOST_DELETES: Final = 100
"""Of one transaction; DynamoDB allows no more."""

_EXISTS: Final = "attribute_exists(#pk)"
_IS_NEW: Final = "attribute_not_exists(#pk)"
_NEWER: Final = "(attribute_not_exists(#asked_at_ms) OR #asked_at_ms <= :asked_at)"
"""A late copy of an older call must not put its dead task token over that of a newer call. A waiter
that an earlier version wrote does not tell when it asked: it must not be shut out of its place."""

_JOIN: Final = Part(sets=f"#contended = :yes, {RETAIN_ITEM}", adds="#wait_seq :one")


def join_queue(
    waiter: Waiter,
    seen: LockState,
    *,
    behind_others: bool,
    again: bool,
    sent_at_ms: int,
    now_ms: int,
) -> Transaction:
    """Enter the queue; or `again`, keep the place in it with a new task token, if it is still held.

    Only while all permits are out, by the waiter's own limit or by those of the holders that were
    seen; or, `behind_others`, while a permit is free that does not help, because a waiter with a
    lower limit came first. Refused if an owner has left since it was sent, or if a later call of
    the same waiter is there, whose task token is awaited.
    """
    request, room = waiter.request, may_not_enter(waiter.request.limit, seen)
    if behind_others:
        room = replace(room, condition=f"({room.condition} OR attribute_exists(#contended))")
    state = conditional_update(
        schema.lock_key(request.lock_name),
        I_DO_NOT_HOLD,
        NOT_RELEASED_BY_ME,
        room,
        not_outdated(sent_at_ms),
        _JOIN,
        owner_id=request.owner_id,
        now_ms=now_ms,
    )
    condition = f"{_EXISTS} AND {_NEWER}" if again else f"({_IS_NEW} OR {_NEWER})"
    put = Put(
        item=new_waiter(waiter),
        condition=condition,
        names=names_in(condition),
        values={":asked_at": number(waiter.asked_at_ms)},
    )
    return Transaction(state=state, other=put)


def confirm_join(request: AcquireRequest, *, now_ms: int) -> Update:
    """Mark the lock as contended once more. Returns its state; refused if I hold it by now."""
    key = schema.lock_key(request.lock_name)
    return conditional_update(key, I_DO_NOT_HOLD, _JOIN, owner_id=request.owner_id, now_ms=now_ms)


def waiters_of(lock_name: str, attributes: str | None = None) -> Query:
    """All waiters of a lock, the oldest first; whole, or these attributes of each."""
    condition = "#pk = :pk AND begins_with(#sk, :prefix)"
    key, prefix = schema.partition_of(lock_name), schema.WAITER_PREFIX
    return Query(
        condition=condition,
        names=names_in(f"{condition} {attributes}"),
        values={":pk": {"S": key}, ":prefix": {"S": prefix}},
        attributes=attributes,
    )


def oldest_waiters(lock_name: str, *, after: Item | None = None) -> Query:
    """The head of the queue; or all that come after a key, as far as a page reaches."""
    most = MOST_WAITERS_SEEN if after is None else None
    return replace(waiters_of(lock_name), most=most, after=after)


def lock_and_oldest_waiters(lock_name: str) -> Query:
    """The item of the lock, if there is one, and its two oldest waiters: one read."""
    condition = "#pk = :pk"
    return Query(
        condition=condition,
        names=names_in(condition),
        values={":pk": {"S": schema.partition_of(lock_name)}},
        most=1 + MOST_WAITERS_POLLED,
    )


def places(lock_name: str, *, up_to: str | None = None) -> Query:
    """Who waits, and how long each keeps its place; all, or up to a sort key."""
    attributes = "#owner_id, #entered_at_ms, #asked_at_ms, #expires_at_ms, #execution_arn"
    every = waiters_of(lock_name, attributes)
    if up_to is None:
        return every
    condition = "#pk = :pk AND #sk BETWEEN :prefix AND :me"
    return replace(every, condition=condition, values={**every.values, ":me": {"S": up_to}})


def delete_waiter(waiter: Waiter) -> Delete:
    """Remove a waiter's item, unless the waiter has asked again since: its task token has moved."""
    return _delete_as_seen(waiter, "#expires_at_ms = :seen_expires_at_ms")


def clear_waiters(waiting: Sequence[Waiter]) -> list[Delete]:
    """Remove waiters, unless one of them has asked again since it was seen."""
    condition = "(attribute_not_exists(#pk) OR #expires_at_ms = :seen_expires_at_ms)"
    return [_delete_as_seen(waiter, condition) for waiter in waiting]


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


def mark_given_up(request: ReleaseRequest, *, left_at_ms: int) -> Update:
    """Remember an owner that gave up before it had anything: its delayed acquire is refused."""
    return _leave(request, mark="#last_given_up", left_at_ms=left_at_ms)


def _leave(request: ReleaseRequest, *, mark: str, left_at_ms: int) -> Update:
    return conditional_update(
        schema.lock_key(request.lock_name),
        I_DO_NOT_HOLD,
        LEFT_LAST_OF_ALL,
        Part(values=departure_times(left_at_ms), sets=f"{mark} = :me, {LEFT_NOW}, {RETAIN_ITEM}"),
        owner_id=request.owner_id,
        now_ms=left_at_ms,
    )


def give_up(request: ReleaseRequest, *, entered_at_ms: int, left_at_ms: int) -> Transaction:
    """Leave the queue for good: no acquire of this owner that is under way may succeed or join."""
    return Transaction(
        state=_leave(request, mark="#last_released", left_at_ms=left_at_ms),
        other=leave_queue(request, entered_at_ms=entered_at_ms),
    )


def _delete_as_seen(waiter: Waiter, condition: str) -> Delete:
    return Delete(
        key=waiter.key,
        condition=condition,
        names=names_in(condition),
        values={":seen_expires_at_ms": number(waiter.expires_at_ms)},
    )
