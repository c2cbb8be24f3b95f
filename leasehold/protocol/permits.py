"""The conditional writes of a lock, one function a write.

    caller                     lock item
      │ acquire_permit              condition: a permit is free, and I neither hold nor released it
      ├─────────────────────────▶ granted with the next fencing token
      │ renew                     condition: I hold
      ├─────────────────────────▶ the lease ends later
      │ release_permit                 condition: I hold, and nobody waits
      └─────────────────────────▶ one permit fewer is out

Each is one request, on a lock never seen before too. When a condition fails DynamoDB returns the
item as it was, so that the reason is known without a second read; `verdict.py` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.protocol import schema
from leasehold.protocol.expressions import (
    I_DO_NOT_HOLD,
    I_HOLD,
    NEXT_TOKEN,
    NOT_CONTENDED,
    NOT_RELEASED_BY_ME,
    PERMIT_FREE,
    all_of,
    number,
    update_of,
)
from leasehold.protocol.items import new_holder
from leasehold.protocol.model import AcquireRequest, HeartbeatRequest, Holder, ReleaseRequest
from leasehold.protocol.requests import Update
from leasehold.protocol.retention import RETAIN_ITEM, retain_item, retained_long_enough, retention

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef


def acquire_permit(request: AcquireRequest, *, now_ms: int, retain_long: bool = False) -> Update:
    """Take a free permit. Grants nothing to a holder, nor to an owner who released last.

    Nor on an item that TTL may delete soon, unless it is to be kept for long: see `retention.py`.
    """
    long = retain_long or request.execution_arn is not None
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET {_become_holder(long=long)} ADD #held :one",
        condition=all_of(
            I_DO_NOT_HOLD,
            NOT_RELEASED_BY_ME,
            NOT_CONTENDED,
            PERMIT_FREE,
            *retained_long_enough(long=long),
        ),
        values={**_as_holder(request, now_ms=now_ms), ":limit": number(request.limit)},
    )


def reacquire_permit(request: AcquireRequest, *, now_ms: int) -> Update:
    """Take a free permit for an acquisition that somebody released on its behalf."""
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET {_become_holder(long=True)} ADD #held :one",
        condition=all_of(I_DO_NOT_HOLD, NOT_CONTENDED, PERMIT_FREE),
        values={**_as_holder(request, now_ms=now_ms), ":limit": number(request.limit)},
    )


def take_over_permit(
    request: AcquireRequest, evictable: Sequence[Holder], *, now_ms: int, retain_long: bool = False
) -> Update:
    """Take the place of holders whose lease is over.

    Conditioned on the revision that was seen of each, so that a heartbeat in between wins. The last
    owner who released stays as it is: a departing has not released, and must be told so.
    """
    expired = _Expired.of(evictable)
    long = retain_long or request.execution_arn is not None
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET {_become_holder(long=long)} REMOVE {expired.removals} ADD #held :difference",
        condition=all_of(
            I_DO_NOT_HOLD,
            NOT_RELEASED_BY_ME,
            NOT_CONTENDED,
            "#held < :limit",
            *expired.unchanged,
            *retained_long_enough(long=long),
        ),
        names=expired.names,
        values={
            **_as_holder(request, now_ms=now_ms),
            **expired.values,
            ":difference": number(1 - len(evictable)),
            # Once the evictable are gone, `held - evictable < limit` must be true.
            ":limit": number(request.limit + len(evictable)),
        },
    )


def evict(lock_name: str, evictable: Sequence[Holder], *, now_ms: int) -> Update:
    """Put out holders whose lease is over, for nobody: more were in than the limit allows."""
    expired = _Expired.of(evictable)
    return update_of(
        lock_name=lock_name,
        owner_id="",
        change=f"SET {RETAIN_ITEM} REMOVE {expired.removals} ADD #held :difference",
        condition=all_of(NOT_CONTENDED, *expired.unchanged),
        names=expired.names,
        values={
            **expired.values,
            ":difference": number(-len(evictable)),
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
        },
    )


def renew(request: HeartbeatRequest, *, now_ms: int, retain_long: bool = False) -> Update:
    """Let the lease end one lease from now, also if it has run out and nobody took the place.

    Never conditioned on anything that the previous heartbeat changed: a heartbeat whose reply was
    lost must not look like a stolen lock. Refused on an item that TTL may delete soon, unless it is
    to be kept for long: see `retention.py`.
    """
    changes = ["#mine.#revision = #mine.#revision + :one", retain_item(long=retain_long)]
    values: dict[str, AttributeValueTypeDef] = {**retention(now_ms)}
    if request.lease_ms is None:
        changes.append("#mine.#expires_at_ms = #mine.#lease_ms + :now")
        values[":now"] = number(now_ms)
    else:
        changes.append("#mine.#expires_at_ms = :expires_at_ms, #mine.#lease_ms = :lease_ms")
        values[":expires_at_ms"] = number(now_ms + request.lease_ms)
        values[":lease_ms"] = number(request.lease_ms)
    if request.data is not None:
        changes.append("#mine.#data = :data")
        values[":data"] = {"S": request.data}
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET {', '.join(changes)}",
        condition=all_of(I_HOLD, *retained_long_enough(long=retain_long)),
        values=values,
    )


def extend_lease(lock_name: str, holder: Holder, *, now_ms: int) -> Update:
    """Renew somebody else's lease once, because the workflow it belongs to still runs.

    Conditioned on the revision that was seen: of many contenders only one extends, and a heartbeat
    of the holder's own wins.
    """
    return update_of(
        lock_name=lock_name,
        owner_id=holder.owner_id,
        change=f"SET #mine.#expires_at_ms = :expires_at_ms, {RETAIN_ITEM}, "
        "#mine.#revision = #mine.#revision + :one",
        condition="#mine.#revision = :revision",
        values={
            ":expires_at_ms": number(now_ms + holder.lease_ms),
            ":expiry_time": number(schema.ttl_seconds(now_ms)),
            ":revision": number(holder.revision),
        },
    )


def release_permit(request: ReleaseRequest, *, now_ms: int) -> Update:
    """Stop being a holder. Returns the item as it was, to tell how long the lock was held."""
    return update_of(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        change=f"SET #held = #held - :one, #last_released = :me, {RETAIN_ITEM} "
        "REMOVE #mine, #my_token",
        condition=all_of(I_HOLD, NOT_CONTENDED),
        values={":expiry_time": number(schema.ttl_seconds(now_ms))},
        returns="ALL_OLD",
    )


@dataclass(frozen=True, slots=True)
class _Expired:
    """The part of an update that removes holders, each on condition of its revision."""

    removals: str
    unchanged: list[str]
    names: dict[str, str]
    values: dict[str, AttributeValueTypeDef]

    @classmethod
    def of(cls, evictable: Sequence[Holder]) -> _Expired:
        numbered = list(enumerate(evictable))
        names = {f"#expired{i}": schema.HOLDER_PREFIX + h.owner_id for i, h in numbered}
        names |= {f"#expired_token{i}": schema.TOKEN_PREFIX + h.owner_id for i, h in numbered}
        return cls(
            removals=", ".join(names),
            unchanged=[f"#expired{i}.#revision = :seen{i}" for i, _ in numbered],
            names=names,
            values={f":seen{i}": number(h.revision) for i, h in numbered},
        )


def _become_holder(*, long: bool) -> str:
    return (
        f"#mine = :holder, #my_token = {NEXT_TOKEN}, #fencing_token = {NEXT_TOKEN}, "
        f"{retain_item(long=long)}"
    )


def _as_holder(request: AcquireRequest, *, now_ms: int) -> dict[str, AttributeValueTypeDef]:
    return {
        ":holder": new_holder(request, now_ms=now_ms),
        ":seed": number(now_ms * 1000),
        **retention(now_ms),
    }
