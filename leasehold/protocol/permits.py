"""The conditional writes of a lock, one function a write.

    caller                        lock item
      │ acquire_permit              condition: a permit is free, and I neither hold nor released it
      ├─────────────────────────▶ granted with the next fencing token
      │ renew                       condition: I hold
      ├─────────────────────────▶ the lease ends later
      │ release_permit              condition: I hold, and nobody waits
      └─────────────────────────▶ one permit fewer is out

Each is one request, on a lock never seen before too. When a condition fails DynamoDB returns the
item as it was, so that `verdict.py` finds the reason without a second read.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasehold.protocol import schema
from leasehold.protocol.departure import DepartingHolder, eviction, removal
from leasehold.protocol.expressions import (
    I_DO_NOT_HOLD,
    I_HOLD,
    NEXT_TOKEN,
    NOT_CONTENDED,
    NOT_RELEASED_BY_ME,
    Values,
    all_of,
    conditional_update,
    number,
    token_seed,
)
from leasehold.protocol.holders import (
    SAME_EXECUTIONS,
    SET_EXECUTIONS,
    new_holder,
    shared_executions,
)
from leasehold.protocol.lease_time import stored_end_ms
from leasehold.protocol.limits import SET_LIMIT, LimitCondition, may_enter, may_enter_as_seen
from leasehold.protocol.model import (
    AcquireRequest,
    HeartbeatRequest,
    Holder,
    LockState,
    ReleaseRequest,
)
from leasehold.protocol.requests import Update
from leasehold.protocol.retention import (
    RETAIN_ITEM,
    needs_longer_retention,
    retain_item,
    retained_long_enough,
)


def acquire_permit(
    request: AcquireRequest, *, now_ms: int, seen: LockState | None = None
) -> Update:
    """Take a free permit. Grants nothing to a holder, nor to an owner who released last.

    The first write supposes what is usual: that all name the same limit (`limits.py`), that their
    executions are of one account and region (`holders.py`), and that TTL will not delete the item
    soon (`retention.py`). If it fails although a permit is free, the second supposes what was
    `seen`.
    """
    retain_long = seen is not None and needs_longer_retention(seen, now_ms=now_ms)
    room = may_enter(request.limit, seen)
    return _grant(
        request, room, NOT_RELEASED_BY_ME, seen=seen, now_ms=now_ms, retain_long=retain_long
    )


def reacquire_permit(
    request: AcquireRequest, *, now_ms: int, seen: LockState | None = None
) -> Update:
    """Take a free permit for an acquisition that somebody released on its behalf."""
    return _grant(
        request, may_enter(request.limit, seen), seen=seen, now_ms=now_ms, retain_long=True
    )


def take_over_permit(
    request: AcquireRequest, evictable: Sequence[Holder], *, now_ms: int, seen: LockState
) -> Update:
    """Take the place of holders whose lease is over, on a lock seen in this state.

    Conditioned on the revision that was seen of each, so that a heartbeat in between wins. The mark
    of the last owner who released stays as it is: an evicted holder has not released, and must be
    told so.
    """
    return _grant(
        request,
        may_enter_as_seen(request.limit, seen, evictable),
        NOT_RELEASED_BY_ME,
        evictable=evictable,
        seen=seen,
        now_ms=now_ms,
        retain_long=needs_longer_retention(seen, now_ms=now_ms),
    )


def evict(lock_name: str, evictable: Sequence[Holder], *, now_ms: int) -> Update:
    """Evict holders whose lease is over, for nobody: more permits were out than a lower limit."""
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET {RETAIN_ITEM} ADD #held :difference",
        condition=NOT_CONTENDED,
        values={":difference": number(-len(evictable))},
        removal=eviction(evictable),
        now_ms=now_ms,
    )


def renew(request: HeartbeatRequest, *, now_ms: int, retain_long: bool = False) -> Update:
    """Let the lease end one lease from now, also if it has run out and nobody took the place.

    Never conditioned on anything that the previous heartbeat changed: a heartbeat whose reply was
    lost must not look like a stolen lock. Refused on an item that TTL may delete soon, unless with
    `retain_long`: see `retention.py`.
    """
    changes = ["#mine.#h_revision = #mine.#h_revision + :one", retain_item(long=retain_long)]
    values: Values = {":now": number(stored_end_ms(now_ms, 0))}
    if request.lease_ms is None:
        changes.append("#mine.#h_expires_at_ms = #mine.#h_lease_ms + :now")
    else:
        changes.append("#mine.#h_expires_at_ms = :expires_at_ms, #mine.#h_lease_ms = :lease_ms")
        values[":expires_at_ms"] = number(stored_end_ms(now_ms, request.lease_ms))
        values[":lease_ms"] = number(request.lease_ms)
    if request.data is not None:
        changes.append("#mine.#h_data = :data")
        values[":data"] = {"S": request.data}
    return conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET {', '.join(changes)}",
        condition=all_of(I_HOLD, *retained_long_enough(long=retain_long)),
        values=values,
        now_ms=now_ms,
    )


def correct_grant(lock_name: str, holder: Holder, *, raises_token: bool, now_ms: int) -> Update:
    """Write the end of a grant once more, which a wrong clock has written just now.

    Conditioned on that very write, so that a copy that comes late moves no end. If the grant was
    the first of its item, the wrong clock has made its fencing token too, which is raised if it is
    too low: nobody has been told of it.
    """
    changes = [
        "#mine.#h_expires_at_ms = :expires_at_ms, #mine.#h_acquired_at_ms = :now",
        f"#mine.#h_revision = #mine.#h_revision + :one, {RETAIN_ITEM}",
    ]
    conditions = ["#mine.#h_revision = :revision", "#my_token = :seen_grant"]
    token = token_seed(now_ms) + 1
    if raises_token and holder.fencing_token < token:
        changes.append("#my_token = :token, #fencing_token = :token")
        conditions.append("#fencing_token = :seen_grant")
    return conditional_update(
        schema.lock_key(lock_name),
        holder.owner_id,
        change=f"SET {', '.join(changes)}",
        condition=all_of(*conditions),
        values={
            ":expires_at_ms": number(stored_end_ms(now_ms, holder.lease_ms)),
            ":now": number(now_ms),
            ":revision": number(holder.revision),
            ":seen_grant": number(holder.fencing_token),
            ":token": number(token),
        },
        now_ms=now_ms,
    )


def extend_lease(lock_name: str, holder: Holder, *, now_ms: int) -> Update:
    """Renew the lease of another owner once, because the workflow it belongs to still runs.

    Conditioned on the revision that was seen: of many contenders only one extends, and a heartbeat
    of the holder's own wins.
    """
    return conditional_update(
        schema.lock_key(lock_name),
        holder.owner_id,
        change=f"SET #mine.#h_expires_at_ms = :expires_at_ms, {RETAIN_ITEM}, "
        "#mine.#h_revision = #mine.#h_revision + :one",
        condition="#mine.#h_revision = :revision",
        values={
            ":expires_at_ms": number(stored_end_ms(now_ms, holder.lease_ms)),
            ":revision": number(holder.revision),
        },
        now_ms=now_ms,
    )


def release_permit(request: ReleaseRequest, *, now_ms: int) -> Update:
    """Stop being a holder. Returns the item as it was, if the grant that ends is to be told of."""
    return conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET #held = #held - :one, #last_released = :me, {RETAIN_ITEM} "
        "REMOVE #mine, #my_token",
        condition=all_of(I_HOLD, NOT_CONTENDED),
        returns="ALL_OLD" if request.tells_grant else "NONE",
        now_ms=now_ms,
    )


def release_by_force(lock_name: str, departing: DepartingHolder, *, now_ms: int) -> Update:
    """Take out the holder of the grant that was seen, on a lock for which nobody waits."""
    leaving = removal(departing)
    return conditional_update(
        schema.lock_key(lock_name),
        change=f"SET #held = #held - :one, {RETAIN_ITEM}{leaving.also_set}",
        condition=NOT_CONTENDED,
        removal=leaving,
        now_ms=now_ms,
    )


def _grant(
    request: AcquireRequest,
    room: LimitCondition,
    *conditions: str,
    evictable: Sequence[Holder] = (),
    seen: LockState | None,
    now_ms: int,
    retain_long: bool,
) -> Update:
    """Makes the owner a holder, in the place of others whose lease is over, if nobody waits."""
    long = retain_long or request.execution_arn is not None
    executions = shared_executions(request, seen)
    more = ":difference" if evictable else ":one"
    return conditional_update(
        schema.lock_key(request.lock_name),
        request.owner_id,
        change=f"SET #mine = :holder, #my_token = {NEXT_TOKEN}, #fencing_token = {NEXT_TOKEN}, "
        f"{SET_LIMIT}, {retain_item(long=long)}"
        f"{SET_EXECUTIONS if executions else ''} ADD #held {more}",
        condition=all_of(
            I_DO_NOT_HOLD,
            NOT_CONTENDED,
            *conditions,
            room.expression,
            *([SAME_EXECUTIONS] if executions else []),
            *retained_long_enough(long=long),
        ),
        values={
            ":holder": new_holder(request, executions, now_ms=now_ms),
            ":executions": {"S": executions or ""},
            ":seed": number(token_seed(now_ms)),
            ":difference": number(1 - len(evictable)),
            **room.values,
        },
        removal=eviction(evictable),
        returns="UPDATED_OLD",
        now_ms=now_ms,
    )
