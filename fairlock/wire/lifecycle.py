"""Lifecycle events: what a write has changed for a lock's owners, as EventBridge receives it.

The lock table's stream has the item before and after each write. So nothing on the way of a call
has to tell, and nothing is told that was not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from fairlock.clock import iso_utc
from fairlock.protocol import schema
from fairlock.protocol.claims import is_fenced, read_claim
from fairlock.protocol.description import describe_holder
from fairlock.protocol.items import is_waiter, read_state, read_waiter
from fairlock.protocol.model import Holder, LockState
from fairlock.protocol.table_requests import Item
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
    SUPERSEDED = "Waiter superseded"
    """A waiter that asked for the newest only has left the queue below a version that was granted.
    """
    REAPED = "Lock reaped"
    """An execution is over without a release: what it holds, or waits for, is about to be freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """One event of one owner, or of a lock's ceiling. Nothing in it proves ownership.

    Attributes:
        holder: the grant that began or ended; None of a waiter and of a reaped execution.
        owner_name: of a waiter; a holder has its own.
        execution_arn: of the owner, if it is a workflow's.
        successor: the fencing token of the grant in the place of one that was taken over.
        requested_by: who released by force, or changed the ceiling, as the request said.
        reason: why.
        ceiling: the limit that was set.
        version: of a waiter that was superseded.
        newest: the version of a grant by which waiters with lower ones are superseded.
    """

    kind: LifecycleKind
    lock_name: str
    holder: Holder | None = None
    owner_name: str | None = None
    execution_arn: str | None = None
    successor: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    ceiling: int | None = None
    version: int | None = None
    newest: int | None = None


def events_of(
    before: Item, after: Item, *, lock_then: Callable[[str], LockState]
) -> Iterator[LifecycleEvent]:
    """What a write of one item tells; nothing of a renewal, and of waiters what superseded them.

    An image is empty if there was no item. `lock_then` gives a lock as it was at this write, asked
    for waiters with a version only, whose items do not tell why they were removed.
    """
    item = after or before
    partition, sort_key = item[schema.PARTITION_KEY]["S"], item[schema.SORT_KEY]["S"]
    if sort_key == schema.STATE:
        lock_name = partition.removeprefix(schema.LOCK_PREFIX)
        yield from _of_lock(lock_name, read_state(before), read_state(after))
    elif is_waiter(item):
        yield from _of_waiter(partition.removeprefix(schema.LOCK_PREFIX), before, after, lock_then)
    elif is_fenced(after) and not is_fenced(before):
        claim = read_claim(partition.removeprefix(schema.partition_of_execution("")), after)
        if not claim.ended:
            yield LifecycleEvent(
                kind=LifecycleKind.REAPED,
                lock_name=claim.lock_name,
                execution_arn=claim.execution_arn,
            )


@dataclass(frozen=True, slots=True)
class StreamRecords:
    """Records of the table's stream, in the order of the writes of each lock.

    Each is as a Lambda function receives it; `read` gets a lock that none of them tells of.
    """

    records: Sequence[Mapping[str, Any]]
    read: Callable[[str], LockState]

    def events(self, place: int) -> Iterator[LifecycleEvent]:
        """What one of the records tells."""
        record = self.records[place]
        images = record["dynamodb"]
        if is_waiter(images["Keys"]) and "userIdentity" in record:
            return iter(())  # TTL removes a waiter that died days ago.
        return events_of(
            images.get("OldImage", {}),
            images.get("NewImage", {}),
            lock_then=lambda lock_name: self._lock_at(place, lock_name),
        )

    def _lock_at(self, place: int, lock_name: str) -> LockState:
        """The lock as it was when another item of it was written, by the nearest write of the lock.

        If there is none, the lock is read: others can have changed it only after these records.
        """
        images = [
            *((record, "NewImage") for record in reversed(self.records[:place])),
            *((record, "OldImage") for record in self.records[place + 1 :]),
        ]
        for record, image in images:
            if record["dynamodb"]["Keys"] == schema.lock_key(lock_name):
                return read_state(record["dynamodb"].get(image, {}))
        return self.read(lock_name)


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


def _of_waiter(
    lock_name: str, before: Item, after: Item, lock_then: Callable[[str], LockState]
) -> Iterator[LifecycleEvent]:
    if after or schema.ONLY_NEWEST not in before:
        return
    waiter, state = read_waiter(lock_name, before).request, lock_then(lock_name)
    # A grant removes its waiter, too. Then no higher version was granted, or the owner is there.
    was_granted = state.holder(waiter.owner_id) or state.last_released == waiter.owner_id
    if state.supersedes(waiter.only_newest) and not was_granted:
        yield LifecycleEvent(
            kind=LifecycleKind.SUPERSEDED,
            lock_name=lock_name,
            owner_name=waiter.owner_name,
            execution_arn=waiter.execution_arn,
            version=waiter.only_newest,
            newest=state.newest,
        )


def _set_by(holder: Holder, before: int, after: int) -> int | None:
    """The newest version that a grant has set; less than before, if it puts back a dead owner's."""
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
    """One event; whatever there is none of is left out. The same event has the same `event_id`."""
    told: dict[str, Any] = {
        "event_id": event_id,
        "lock_name": event.lock_name,
        "at": iso_utc(at_ms),
        "owner_name": event.owner_name,
        "execution_arn": event.execution_arn,
        "successor_fencing_token": event.successor,
        "requested_by": event.requested_by,
        "reason": event.reason,
        "limit": event.ceiling,
        "version": event.version,
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
