"""The nouns of the lock protocol: what is asked, and the state of a lock.

All times are epoch milliseconds and all spans milliseconds; `fairlock.wire` makes the wire format
(seconds, ISO 8601).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from fairlock.clock import is_over, stored_end_ms
from fairlock.protocol import schema
from fairlock.protocol.table_requests import Item

DEFAULT_LEASE_MS: Final = 60_000
TELLING_MS: Final = 3_000
"""How long a hand-off may take to tell the new holder, and to put back what it has set."""
BY_TIME: Final = -1
"""The version of an acquisition that names none: its place in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """What names an acquisition: its owner_id proves ownership, and is never shown to others."""

    lock_name: str
    owner_id: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireRequest(Acquisition):
    """One acquisition of one permit.

    Attributes:
        owner_name: a label for people, which proves nothing.
        lease_ms: how long the lock is held without a heartbeat.
        limit: number of permits; 1 makes the lock a mutex. While this owner holds, no more hold.
        data: a JSON object, as compact text, that is stored with the holder.
        execution_arn: the workflow execution whose end ends this acquisition.
        redrives: how often that had been redriven when this call was made.
        waiting_since_ms: when the caller says that it began to wait; for advice only.
        ticket: the place in the queue that the caller says it has; it counts only if a waiter of
            this owner is found there.
        claimed_at_ms: the place in the queue that a workflow's claim gives; set by the store.
        called_at_ms: when its caller says that this call was made: it may be a late copy since.
        registered_at_ms: when this call wrote its claim, set by the store. If others have left
            since, the claim tells whether the call is still wanted.
        made_at: reading of our monotonic clock when this call was made: of two calls of one
            acquisition the newer one's task token counts. Set by the store; None for now.
        waits: whether to join the queue if all permits are out.
        task_token: completed with the grant at a hand-off; without one a waiter polls.
        poll_interval_ms: how often a waiter without a task token polls; a lease handed to it begins
            that much later. None: as often as it is advised.
        waiter_timeout_ms: how long a waiter keeps its place without asking again. None: for two of
            the advised polls, or with a task token for the longest fallback period.
        shared: whether this owner is a reader. The limits keep readers and writers apart; this is
            stored so that messages can show it.
        only_newest: the version, superseded once a higher one was granted; `BY_TIME` until the
            store has given it one. None if it takes its turn.
    """

    owner_name: str = ""
    lease_ms: int = DEFAULT_LEASE_MS
    limit: int = 1
    data: str | None = None
    execution_arn: str | None = None
    redrives: int | None = None
    waiting_since_ms: int | None = None
    ticket: int | None = None
    claimed_at_ms: int | None = None
    called_at_ms: int | None = None
    registered_at_ms: int | None = None
    made_at: float | None = field(default=None, compare=False)
    waits: bool = False
    task_token: str | None = field(default=None, repr=False)
    poll_interval_ms: int | None = None
    waiter_timeout_ms: int | None = None
    shared: bool = False
    only_newest: int | None = None

    def suits(self, holder: Holder) -> bool:
        """Whether the limits of both go together: the same, or those of a reader and a writer."""
        are_apart = self.shared != holder.shared and 1 in (self.limit, holder.limit)
        return self.owner_id == holder.owner_id or self.limit == holder.limit or are_apart

    def as_holder(self, *, fencing_token: int, now_ms: int, begins_ms: int | None = None) -> Holder:
        """The holder that its owner becomes by a grant now; its lease may begin later."""
        begins_ms = now_ms if begins_ms is None else begins_ms
        return Holder(
            owner_id=self.owner_id,
            owner_name=self.owner_name,
            acquired_at_ms=now_ms,
            expires_at_ms=stored_end_ms(begins_ms, self.lease_ms),
            lease_ms=self.lease_ms,
            limit=self.limit,
            revision=1,
            fencing_token=fencing_token,
            data=self.data,
            execution_arn=self.execution_arn,
            shared=self.shared,
        )

    @property
    def heartbeat(self) -> HeartbeatRequest:
        """The heartbeat that renews what this request was granted."""
        return HeartbeatRequest(
            lock_name=self.lock_name,
            owner_id=self.owner_id,
            lease_ms=self.lease_ms,
            # By time, the version is known to the store alone. It has marked it with the grant.
            only_newest=None if self.only_newest == BY_TIME else self.only_newest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(Acquisition):
    """Renew for `lease_ms`, or for the lease of the acquisition; mark a version as granted."""

    lease_ms: int | None = None
    data: str | None = None
    only_newest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAliveRequest:
    """A heartbeat of a workflow that keeps what it holds, or must take again after a redrive.

    The `task_token` of its state is completed when the work has ended, or the lock is lost.
    """

    acquisition: AcquireRequest
    execution_arn: str
    task_token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest(Acquisition):
    """Give the permit back, or leave the queue.

    Attributes:
        waits: whether it may still be in the queue.
        ticket: its place there, as far as the caller knows; the claim of a workflow knows better.
        keep_alive: whether its workflow sends heartbeats, which end with this release.
        tells_grant: whether the answer has to tell of the grant that ended, as for an execution.
        fencing_token: of the grant that is to end; None ends any grant of this owner.
    """

    waits: bool = False
    ticket: int | None = None
    execution_arn: str | None = None
    keep_alive: bool = False
    tells_grant: bool = True
    fencing_token: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceReleaseRequest:
    """Take out a holder that is not the caller: the one that was granted this fencing token."""

    lock_name: str
    fencing_token: int
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An owner that has a permit, as the table describes it. Every heartbeat adds 1 to `revision`.

    Attributes:
        limit: how many permits the lock has, as this owner's request said.
        undelivered: whether a hand-off could not reach its waiter.
        pushed: whether a hand-off has set its version as the newest, before it was notified.
    """

    owner_id: str = field(repr=False)
    owner_name: str
    acquired_at_ms: int
    expires_at_ms: int
    lease_ms: int
    limit: int
    revision: int
    fencing_token: int
    data: str | None = None
    execution_arn: str | None = None
    undelivered: bool = False
    shared: bool = False
    pushed: bool = False

    @property
    def is_undelivered(self) -> bool:
        """Whether the owner still does not know of the grant: if it asks again, it renews first."""
        return self.undelivered and self.revision == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Acquisition):
    """Yes: the caller holds the lock; the answer to a heartbeat too.

    Attributes:
        repeated: the permit had been granted before, to a call whose reply may have been lost.
        taken_over: how many holders lost their place for this grant, because their lease was over.
        since: reading of our monotonic clock before the request that showed the grant was sent.
        own_ms: for how long after `since` its owner may rely on it; None if it is another owner's.
    """

    fencing_token: int
    lease_ms: int
    acquired_at_ms: int
    expires_at_ms: int
    repeated: bool = False
    taken_over: int = 0
    since: float = field(default=-math.inf, compare=False)
    own_ms: int | None = field(default=None, compare=False)

    @property
    def ends_at(self) -> float:
        """Reading of our monotonic clock from which its owner may not rely on it."""
        return self.since + (self.own_ms or 0) / 1000

    @classmethod
    def of(cls, lock_name: str, holder: Holder, *, repeated: bool = False) -> Grant:
        """The grant of this holder."""
        return cls(
            lock_name=lock_name,
            owner_id=holder.owner_id,
            fencing_token=holder.fencing_token,
            lease_ms=holder.lease_ms,
            acquired_at_ms=holder.acquired_at_ms,
            expires_at_ms=holder.expires_at_ms,
            repeated=repeated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedRelease:
    """A holder was released by another principal, by force: which grant ended, and who says why."""

    fencing_token: int
    at_ms: int
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A change of the ceiling: 0 pauses the lock, None has lifted it. It is the `change`-th one."""

    limit: int | None
    change: int
    at_ms: int
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockState:
    """One lock, as its item describes it. A lock never seen before has no holders.

    Attributes:
        held: the permits that are out.
        limit: the limit in force, never above that of a holder; 0 if it was never held.
        last_released: who gave back a permit or a place in the queue last.
        last_given_up: who gave up last without having had either.
        released_at_ms: when a holder or a waiter left last.
        contended: whether it may have waiters.
        wait_seq: how many waiters ever joined.
        retain_until_seconds: until when a grant to a workflow retains the item.
        executions: how the ARNs of its holders' executions begin.
        newest: the highest version that was granted; `newest_token` is of the grant that set it.
    """

    fencing_token: int = 0
    held: int = 0
    limit: int = 0
    last_released: str | None = None
    last_given_up: str | None = None
    released_at_ms: int | None = None
    contended: bool = False
    wait_seq: int = 0
    retain_until_seconds: int | None = None
    executions: str | None = None
    last_forced_release: ForcedRelease | None = None
    newest: int | None = None
    newest_token: int | None = None
    last_ceiling: Ceiling | None = None
    holders: tuple[Holder, ...] = field(default=())

    def holder(self, owner_id: str) -> Holder | None:
        """The holder with this owner id, if there is one."""
        return next((h for h in self.holders if h.owner_id == owner_id), None)

    def without(self, *owner_ids: str) -> LockState:
        """The same lock without these holders; as many permits are out."""
        return replace(self, holders=tuple(h for h in self.holders if h.owner_id not in owner_ids))

    def with_holder(self, changed: Holder) -> LockState:
        """The same lock, with another record of one of its holders."""
        holders = (changed if h.owner_id == changed.owner_id else h for h in self.holders)
        return replace(self, holders=tuple(holders))

    def has_left(self, owner_id: str) -> bool:
        """Whether this owner released or gave up, as far as the lock still knows."""
        return owner_id in (self.last_released, self.last_given_up)

    def left_at_ms(self, now_ms: int) -> int:
        """The present, for an owner that leaves the lock as it was seen: it leaves last."""
        return max(now_ms, self.released_at_ms or 0)

    def supersedes(self, version: int | None) -> bool:
        """Whether a higher version than this one was granted."""
        return version is not None and version < (self.newest or 0)

    def is_telling(self, *, date_ms: int) -> bool:
        """Whether an owner whose grant has set `newest` is perhaps about to be notified of it.

        If no one is there to be notified, what this grant has set is put back.
        """
        return any(
            h.pushed and h.revision == 1 and date_ms < h.acquired_at_ms + TELLING_MS
            for h in self.holders
        )

    @property
    def ceiling(self) -> Ceiling | None:
        """The ceiling that stands; None if none does."""
        last = self.last_ceiling
        return None if last is None or last.limit is None else last

    def limit_for(self, limit: int) -> int:
        """How many may hold when an owner with this limit does: all other limits count too."""
        limits = [limit, *(holder.limit for holder in self.holders)]
        last = self.last_ceiling
        return min(limits if last is None or last.limit is None else [*limits, last.limit])

    def has_room(self, limit: int) -> bool:
        """Whether an owner with this limit may come in."""
        return self.held < self.limit_for(limit)

    def is_full(self) -> bool:
        """Whether no owner is let in, whatever limit the owner that asks has named."""
        return not self.has_room(self.held + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """An acquisition in the queue: its place there, and when it is gone unless it asks again.

    One that was read by `waiters.places` has its owner, its execution and its times only, and must
    not be served.
    """

    request: AcquireRequest
    entered_at_ms: int
    asked_at_ms: int
    expires_at_ms: int

    @property
    def key(self) -> Item:
        """The key of its item."""
        name = self.request.lock_name
        return schema.waiter_key(name, entered_at_ms=self.entered_at_ms, owner_id=self.owner_id)

    @property
    def owner_id(self) -> str:
        """Who waits."""
        return self.request.owner_id

    @property
    def sort_key(self) -> str:
        """The part of the key by which waiters are in order."""
        return schema.waiter_sort_key(entered_at_ms=self.entered_at_ms, owner_id=self.owner_id)

    def as_holder(self, *, fencing_token: int, now_ms: int) -> Holder:
        """The holder that this waiter becomes if the lock is handed over to it now.

        A waiter that polls learns of its grant only when it asks again: its lease begins then.
        """
        request = self.request
        begins_ms = max(now_ms, self.expires_at_ms)
        if request.task_token is not None:
            begins_ms = now_ms
        elif request.poll_interval_ms is not None:
            begins_ms = now_ms + request.poll_interval_ms
        holder = request.as_holder(fencing_token=fencing_token, now_ms=now_ms, begins_ms=begins_ms)
        return replace(holder, pushed=self.marks_newest)

    @property
    def marks_newest(self) -> bool:
        """Whether a hand-off to this waiter sets `newest`; one that polls does that by itself."""
        return self.request.only_newest is not None and self.request.task_token is not None


def is_dead(waiter: Waiter, *, date_ms: int, served: Collection[str | None] = frozenset()) -> bool:
    """Whether no one need wait for this waiter: it has stopped asking, or was served already.

    The owner of a served one holds or has released: it entered twice, after a reply that was lost.
    """
    return waiter.owner_id in served or is_over(waiter.expires_at_ms, date_ms=date_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLock:
    """A lock as it was read, perhaps with the head of its queue.

    Attributes:
        waiters: the oldest waiters, in order; all that there were if the queue `is_whole`.
        queue_seen_at: a reading of the monotonic clock not later than the view of these waiters.
        date_ms: the Date of the answer that showed the state; None if that is not known.
    """

    state: LockState
    waiters: tuple[Waiter, ...] = field(default=(), repr=False)
    queue_seen_at: float = -math.inf
    is_whole: bool = False
    date_ms: int | None = None
