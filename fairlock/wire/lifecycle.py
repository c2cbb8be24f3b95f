"""Lifecycle events: what a write has changed for a lock's owners, as EventBridge receives it.

The lock table's stream has the item before and after each write. So nothing on the way of a call
has to tell, and nothing is told that was not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from fairlock.clock import iso_utc
from fairlock.protocol import schema
from fairlock.protocol.claims import is_fenced, read_claim
from fairlock.protocol.description import describe_holder
from fairlock.protocol.expressions import Item
from fairlock.protocol.items import read_state
from fairlock.protocol.model import Holder, LockState
from fairlock.wire.answers import holder_json


class LifecycleKind(StrEnum):
    """What happened to an owner, as the `detail-type` of EventBridge names it."""

    GRANTED = "Lock granted"
    """An owner got the lock: by its call, or by a hand-off while it waited."""
    RELEASED = "Lock released"
    """A holder gave the lock back, or the reaper did so on its behalf."""
    RELEASED_BY_FORCE = "Lock released by force"
    """Another principal has ended the grant."""
    TAKEN_OVER = "Lock taken over"
    """A holder's lease was over, and another owner got its place."""
    LOST = "Lock lost"
    """A holder's lease was over, and no owner took its place."""
    LIMITED = "Lock limited"
    """An operator has limited the lock: no grant goes above that, whatever limits callers name."""
    PAUSED = "Lock paused"
    """An operator has paused the lock: no caller gets it, and holders go on."""
    RESUMED = "Lock resumed"
    """An operator has lifted the limit or the pause."""
    REAPED = "Lock reaped"
    """An execution is over without a release: what it holds, or waits for, is about to be freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """One event of one owner, or of a lock's ceiling. Nothing in it proves ownership.

    Attributes:
        holder: the grant that began or ended; None of a reaped execution.
        execution_arn: of the owner, if it is a workflow's.
        successor: the fencing token of the grant in the place of one that was taken over.
        requested_by: who released by force, or changed the ceiling, as the request said.
        reason: why.
        ceiling: the limit that was set.
        newest: the version of a grant by which waiters with lower ones are superseded.
    """

    kind: LifecycleKind
    lock_name: str
    holder: Holder | None = None
    execution_arn: str | None = None
    successor: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    ceiling: int | None = None
    newest: int | None = None


def events_of(before: Item, after: Item) -> Iterator[LifecycleEvent]:
    """What a write of one item tells; nothing of a renewal, and of waiters.

    Args:
        before: the item before the write; empty if there was none.
        after: the item after it; empty if it was deleted.

    Raises:
        LockItemMalformed: another program has changed the item.
    """
    item = after or before
    partition, sort_key = item[schema.PARTITION_KEY]["S"], item[schema.SORT_KEY]["S"]
    if sort_key == schema.STATE:
        lock_name = partition.removeprefix(schema.LOCK_PREFIX)
        yield from _of_lock(lock_name, read_state(before), read_state(after))
    elif is_fenced(after) and not is_fenced(before):
        claim = read_claim(partition.removeprefix(schema.partition_of_execution("")), after)
        if not claim.ended:
            yield LifecycleEvent(
                kind=LifecycleKind.REAPED,
                lock_name=claim.lock_name,
                execution_arn=claim.execution_arn,
            )


def _of_lock(lock_name: str, before: LockState, after: LockState) -> Iterator[LifecycleEvent]:
    """No write takes an owner out and in again: who is in both images has the same grant.

    Its fencing token may have moved all the same: see `correct_grant`.
    """
    old = {holder.owner_id for holder in before.holders}
    new = {holder.owner_id for holder in after.holders}
    granted = [holder for holder in after.holders if holder.owner_id not in old]
    for holder in before.holders:
        if holder.owner_id not in new:
            yield _departure(lock_name, holder, after, granted)
    for holder in granted:
        yield LifecycleEvent(
            kind=LifecycleKind.GRANTED,
            lock_name=lock_name,
            holder=holder,
            execution_arn=holder.execution_arn,
            newest=_set_by(holder, before.newest or 0, after.newest or 0),
        )
    last = after.last_ceiling
    if last is not None and last != before.last_ceiling:
        yield LifecycleEvent(
            kind=_CEILING_KINDS.get(last.limit, LifecycleKind.LIMITED),
            lock_name=lock_name,
            requested_by=last.requested_by,
            reason=last.reason,
            ceiling=last.limit,
        )


def _set_by(holder: Holder, before: int, after: int) -> int | None:
    """The newest version that a grant has set.

    The same write may lower it, because it puts back what a dead owner's grant had set. Then only
    a hand-off to another version has set it.
    """
    has_set = after > before or (after < before and holder.pushed)
    return after if has_set else None


_CEILING_KINDS: Final = {None: LifecycleKind.RESUMED, 0: LifecycleKind.PAUSED}


def _departure(
    lock_name: str, holder: Holder, after: LockState, granted: list[Holder]
) -> LifecycleEvent:
    forced, successor, requested_by, reason = after.last_forced_release, None, None, None
    if forced is not None and forced.fencing_token == holder.fencing_token:
        kind = LifecycleKind.RELEASED_BY_FORCE
        requested_by, reason = forced.requested_by, forced.reason
    elif after.last_released == holder.owner_id:
        kind = LifecycleKind.RELEASED
    elif granted:
        kind, successor = LifecycleKind.TAKEN_OVER, granted[0].fencing_token
    else:
        kind = LifecycleKind.LOST
    return LifecycleEvent(
        kind=kind,
        lock_name=lock_name,
        holder=holder,
        execution_arn=holder.execution_arn,
        successor=successor,
        requested_by=requested_by,
        reason=reason,
    )


def lifecycle_json(event: LifecycleEvent, *, event_id: str, at_ms: int) -> dict[str, Any]:
    """One event; whatever there is none of is left out.

    Args:
        event: what happened.
        event_id: the same when the event comes twice.
        at_ms: when the write happened, as the stream tells it, to the second.
    """
    told: dict[str, Any] = {
        "event_id": event_id,
        "lock_name": event.lock_name,
        "at": iso_utc(at_ms),
        "execution_arn": event.execution_arn,
        "successor_fencing_token": event.successor,
        "requested_by": event.requested_by,
        "reason": event.reason,
        "limit": event.ceiling,
        "newest": event.newest,
    }
    holder = event.holder
    if holder is not None:
        whole = holder_json(describe_holder(holder))
        fields = ["owner_name", "fencing_token", "acquired_at"]
        if event.kind is LifecycleKind.GRANTED:
            fields += ["limit", "lease_seconds"]
            told["shared"] = holder.shared or None
        else:
            told["held_ms"] = max(0, at_ms - holder.acquired_at_ms)
        told |= {name: whole[name] for name in fields}
    return {name: value for name, value in told.items() if value is not None}
