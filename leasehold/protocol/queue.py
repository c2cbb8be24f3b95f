"""The writes of the queue: who waits, and how a permit goes from a departing to the oldest waiter.

    waiter                       lock item                      waiter item
      │ join_queue     ── one ──▶ contended, wait_seq + 1   ───▶ put
      │                           condition: permits are out
      ┊ (sleeps)
    departing
      │ oldest_waiters ─────────────────────────────────────▶ query
      │ hand_over_permit      ── one ──▶ departing out, waiter in     ───▶ delete
      └ push: tell the waiter     condition: as it was seen      condition: it exists

Joining and handing over are transactions, so that at any time: a waiter item exists only while the
lock is contended, and its owner is not a holder. From this follows all the rest. A claim needs a
lock that is not contended, so nobody overtakes; an owner who was granted leaves no waiter behind,
so no permit is ever handed to somebody who has been and gone.

The flag is cleared by whoever finds the queue empty, on condition that `wait_seq` has not moved
since the flag was seen: a waiter that joined in between keeps it set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from leasehold.protocol import schema
from leasehold.protocol.expressions import (
    I_DO_NOT_HOLD,
    NOT_RELEASED_BY_ME,
    all_of,
    number,
    update_of,
)
from leasehold.protocol.items import new_holder, new_waiter
from leasehold.protocol.model import Grant, HandOff, Holder, LockState, ReleaseRequest, Waiter
from leasehold.protocol.requests import Delete, Put, Query, Transaction, Update
from leasehold.protocol.retention import RETAIN_ITEM, needs_longer_retention, retain_item, retention

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

MOST_WAITERS_SEEN: Final = 10
_WAIT_SEQ_UNMOVED: Final = "#wait_seq = :wait_seq"
_NAMES: Final = {"#pk": schema.PARTITION_KEY, "#sk": schema.SORT_KEY}


@dataclass(frozen=True, slots=True)
class DepartingHolder:
    """A holder on its way out.

    Attributes:
        holder: who leaves, as it was seen.
        voluntary: whether it gives the permit back; else it is put out, on the condition that its
            revision is as seen, so that a heartbeat in between wins.
    """

    holder: Holder
    voluntary: bool


def join_queue(waiter: Waiter, *, behind_others: bool, now_ms: int) -> Transaction:
    """Enter the queue, or keep the place in it with a new task token.

    Only while all permits are out; or, `behind_others`, while a permit is free that does not help,
    because a waiter with a lower limit came first.
    """
    request = waiter.request
    state = update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET #contended = :yes, {RETAIN_ITEM} ADD #wait_seq :one",
        condition=all_of(
            I_DO_NOT_HOLD,
            NOT_RELEASED_BY_ME,
            "(#held >= :limit OR #contended = :yes)" if behind_others else "#held >= :limit",
        ),
        values={
            ":limit": number(request.limit),
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
        },
    )
    return Transaction(state=state, other=Put(item=new_waiter(waiter, now_ms=now_ms)))


def oldest_waiters(lock_name: str) -> Query:
    """The head of the queue."""
    return Query(
        condition="#pk = :pk AND begins_with(#sk, :prefix)",
        names=_NAMES,
        values={
            ":pk": {"S": schema.partition_of(lock_name)},
            ":prefix": {"S": schema.WAITER_PREFIX},
        },
        most=MOST_WAITERS_SEEN,
    )


def waiters_of(lock_name: str, owner_id: str) -> Query:
    """The places of one owner in the queue: one, unless it entered twice."""
    query = oldest_waiters(lock_name)
    return replace(
        query,
        names={**query.names, "#owner_id": schema.OWNER_ID},
        values={**query.values, ":me": {"S": owner_id}},
        only="#owner_id = :me",
        most=None,
    )


def waiters_up_to(waiter: Waiter) -> Query:
    """The queue from its head to this waiter; their number is its position."""
    request = waiter.request
    key = schema.waiter_key(
        request.lock_name, entered_at_ms=waiter.entered_at_ms, owner_id=request.owner_id
    )
    return Query(
        condition="#pk = :pk AND #sk BETWEEN :prefix AND :me",
        names=_NAMES,
        values={
            ":pk": key[schema.PARTITION_KEY],
            ":prefix": {"S": schema.WAITER_PREFIX},
            ":me": key[schema.SORT_KEY],
        },
    )


def hand_over_permit(
    state: LockState,
    waiter: Waiter,
    departing: DepartingHolder | None,
    *,
    is_last: bool,
    now_ms: int,
) -> tuple[Transaction, HandOff]:
    """Give the departing's permit, or a free one if there is no departing, to a waiter.

    If it is the last waiter that was seen, nobody may have joined since: who joined behind a waiter
    with a lower limit would be next, and nobody would look for him.

    A transaction returns nothing, so the token is chosen here, on the condition that nobody was
    granted one since the state was seen.
    """
    request = waiter.request
    token = state.fencing_token + 1
    expires_at_ms = waiter.lease_begins_ms(now_ms) + request.lease_ms
    leaving = _leaving(departing)
    # What was seen stands: `retain_until` moves with a grant only, or when it is put off.
    retain_long = request.execution_arn is not None or needs_longer_retention(state, now_ms=now_ms)
    update = update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change="SET #mine = :holder, #my_token = :token, #fencing_token = :token, "
        f"{retain_item(long=retain_long)}{leaving.also_set} {leaving.remove} "
        + ("" if departing else "ADD #held :one"),
        # The waiter's own limit holds: others than the departing may hold at most `limit - 1`.
        condition=all_of(
            I_DO_NOT_HOLD,
            "#fencing_token = :seen_token",
            "#held <= :limit" if departing else "#held < :limit",
            *([_WAIT_SEQ_UNMOVED] if is_last else []),
            *leaving.conditions,
        ),
        names=leaving.names,
        values={
            **leaving.values,
            ":holder": new_holder(request, now_ms=now_ms, expires_at_ms=expires_at_ms),
            ":token": number(token),
            ":seen_token": number(state.fencing_token),
            ":wait_seq": number(state.wait_seq),
            ":limit": number(request.limit),
            **retention(now_ms),
        },
    )
    grant = Grant(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        fencing_token=token,
        lease_ms=request.lease_ms,
        acquired_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
    )
    transaction = Transaction(state=update, other=delete_waiter(waiter))
    waited_ms = max(0, now_ms - waiter.entered_at_ms)
    return transaction, HandOff(grant=grant, waiter=waiter, waited_ms=waited_ms)


def mark_undelivered(grant: Grant) -> Update:
    """Nobody was there to be told of a hand-off. Refused if the waiter has asked again since.

    Perhaps it asks again; or its branch of a workflow that goes on was stopped, and never will.
    """
    return update_of(
        lock_name=grant.lock_name,
        owner_id=grant.owner_id,
        change="SET #mine.#undelivered = :yes",
        condition="#mine.#revision = :one",
        values={},
    )


def leave_without_successor(
    lock_name: str, departing: DepartingHolder, *, waiters_limit: int, now_ms: int
) -> Update:
    """Leave without a successor: more permits are out than the oldest waiter's limit allows."""
    return _leave(
        lock_name,
        departing,
        also_set="",
        condition="#held > :limit",
        values={":limit": number(waiters_limit)},
        now_ms=now_ms,
    )


def leave_and_close_queue(
    lock_name: str, departing: DepartingHolder, *, wait_seq: int, now_ms: int
) -> Update:
    """Leave a lock for which nobody waits any more, and let it be claimed again."""
    return _leave(
        lock_name,
        departing,
        also_set=", #contended = :no",
        condition=_WAIT_SEQ_UNMOVED,
        values={":wait_seq": number(wait_seq)},
        now_ms=now_ms,
    )


def close_queue(lock_name: str, *, wait_seq: int) -> Update:
    """Let a lock be claimed again for which nobody waits any more."""
    return update_of(
        lock_name=lock_name,
        owner_id="",
        change="SET #contended = :no",
        condition=_WAIT_SEQ_UNMOVED,
        values={":wait_seq": number(wait_seq)},
    )


def delete_waiter(waiter: Waiter) -> Delete:
    """Remove the waiter's item, unless it has asked again since it was seen.

    Then its end has moved, and perhaps its task token: told by the old one it would never hear of
    the grant.
    """
    request = waiter.request
    return Delete(
        key=schema.waiter_key(
            request.lock_name, entered_at_ms=waiter.entered_at_ms, owner_id=request.owner_id
        ),
        condition="#expires_at_ms = :seen_expires_at_ms",
        names={"#expires_at_ms": schema.EXPIRES_AT_MS},
        values={":seen_expires_at_ms": number(waiter.expires_at_ms)},
    )


def give_up(request: ReleaseRequest, *, entered_at_ms: int, now_ms: int) -> Transaction:
    """Leave the queue for good: no acquire of ours that is still under way may claim or join."""
    return Transaction(
        state=mark_released(request, now_ms=now_ms),
        other=leave_queue(request, entered_at_ms=entered_at_ms),
    )


def leave_queue(request: ReleaseRequest, *, entered_at_ms: int) -> Delete:
    """Take a waiter out of the queue."""
    return Delete(
        key=schema.waiter_key(
            request.lock_name, entered_at_ms=entered_at_ms, owner_id=request.owner_id
        ),
        condition="#owner_id = :me",
        names={"#owner_id": schema.OWNER_ID},
        values={":me": {"S": request.owner_id}},
    )


def mark_released(request: ReleaseRequest, *, now_ms: int) -> Update:
    """Remember the one who gave up, so that a delayed acquire of its own is refused."""
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET #last_released = :me, {RETAIN_ITEM}",
        condition=I_DO_NOT_HOLD,
        values={":expiry_time": number(schema.ttl_seconds(now_ms))},
    )


@dataclass(frozen=True, slots=True)
class _Leaving:
    """The part of an update that takes a departing out."""

    also_set: str
    remove: str
    conditions: tuple[str, ...]
    names: dict[str, str]
    values: dict[str, AttributeValueTypeDef]


def _leaving(departing: DepartingHolder | None) -> _Leaving:
    if departing is None:
        return _Leaving("", "", (), {}, {})
    owner_id = departing.holder.owner_id
    names = {
        "#departing": schema.HOLDER_PREFIX + owner_id,
        "#departing_token": schema.TOKEN_PREFIX + owner_id,
    }
    remove = "REMOVE #departing, #departing_token"
    if departing.voluntary:
        values: dict[str, AttributeValueTypeDef] = {":departing": {"S": owner_id}}
        also_set = ", #last_released = :departing"
        return _Leaving(also_set, remove, ("attribute_exists(#departing)",), names, values)
    values = {":revision": number(departing.holder.revision)}
    return _Leaving("", remove, ("#departing.#revision = :revision",), names, values)


def _leave(
    lock_name: str,
    departing: DepartingHolder,
    *,
    also_set: str,
    condition: str,
    values: dict[str, AttributeValueTypeDef],
    now_ms: int,
) -> Update:
    leaving = _leaving(departing)
    return update_of(
        lock_name=lock_name,
        owner_id=departing.holder.owner_id,
        change=f"SET #held = #held - :one, {RETAIN_ITEM}{leaving.also_set}{also_set} "
        f"{leaving.remove}",
        condition=all_of(*leaving.conditions, condition),
        names=leaving.names,
        values={
            **leaving.values,
            **values,
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
        },
    )
