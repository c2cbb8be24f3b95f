"""Decides whose heartbeat is next: pure bookkeeping, without threads and requests.

Every lock has one moment at which it needs attention: its heartbeat is due, it comes into danger,
or its lease is over. Heartbeats that are due and find no worker wait; the lease that ends first
goes first.

Heartbeats of locks that were acquired together would stay together, and need many workers at a
time. So first and later periods are shortened at random; and if recent heartbeats were late, all
begin earlier by as much.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import Final

from fairlock.backoff import Random
from fairlock.client.lease_handle import LeaseHandle

_LEAST_FIRST_SHARE: Final = 0.5
_SPREAD: Final = 0.1
_EARLIEST_SHARE: Final = 0.5
_NEWEST_WEIGHT: Final = 0.1
_SHORTEST_RETRY_SECONDS: Final = 0.05
_RETRY_SHARE_OF_PERIOD: Final = 0.25
_RETRY_SHARE_OF_REST: Final = 0.125
_MOST_STALE_ENTRIES: Final = 1_000


@dataclass(slots=True, eq=False)
class ScheduledHeartbeat:
    """One lock's next heartbeat.

    Attributes:
        handle: the lock.
        due_at: reading of the monotonic clock at which the heartbeat is due.
        in_flight: whether the heartbeat waits for a worker, or is under way.
        attention_at: the moment of the lock's only valid entry in the agenda.
        is_removed: whether the lock was taken out of the schedule.
    """

    handle: LeaseHandle
    due_at: float
    in_flight: bool = False
    attention_at: float = 0.0
    is_removed: bool = False


_Entry = tuple[float, int, ScheduledHeartbeat]


@dataclass(slots=True, kw_only=True)
class HeartbeatSchedule:
    """The heartbeats of all locks of a client.

    Attributes:
        most_at_once: how many heartbeats may be under way at a time.
        random: source of jitter.
        late_seconds: how late recent heartbeats came to their end, on average.
    """

    most_at_once: int
    random: Random = field(default=random.random)
    late_seconds: float = 0.0
    _scheduled: dict[LeaseHandle, ScheduledHeartbeat] = field(default_factory=dict)
    _agenda: list[_Entry] = field(default_factory=list)
    _ready: list[_Entry] = field(default_factory=list)
    _under_way: int = 0
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, handle: LeaseHandle) -> None:
        """Plans heartbeats of a lock; plans them anew if its lease has another length now."""
        self.remove(handle)
        lease = handle.lease
        share = _LEAST_FIRST_SHARE + self.random() * (1 - _LEAST_FIRST_SHARE)
        due_at = lease.renewed_at + lease.period * share
        scheduled = self._scheduled[handle] = ScheduledHeartbeat(handle, due_at)
        self._enter(scheduled)

    def remove(self, handle: LeaseHandle) -> None:
        """Plans no heartbeat of a lock any more."""
        scheduled = self._scheduled.pop(handle, None)
        if scheduled is not None:
            scheduled.is_removed = True
        if len(self._agenda) > 2 * len(self._scheduled) + _MOST_STALE_ENTRIES:
            self._agenda = [entry for entry in self._agenda if _is_valid(entry)]
            heapq.heapify(self._agenda)

    def handles(self) -> list[LeaseHandle]:
        """All locks with heartbeats."""
        return list(self._scheduled)

    def has(self, handle: LeaseHandle) -> bool:
        """Whether a lock has heartbeats."""
        return handle in self._scheduled

    def is_empty(self) -> bool:
        """Whether no lock has heartbeats."""
        return not self._scheduled

    def is_idle(self) -> bool:
        """Whether no lock has heartbeats, and none is under way any more."""
        return not self._scheduled and not self._under_way

    def next_at(self) -> float:
        """When to call `due` next, if nothing happens before; never, if there are no locks."""
        while self._agenda and not _is_valid(self._agenda[0]):
            heapq.heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else math.inf

    def due(self, now: float) -> list[ScheduledHeartbeat]:
        """The heartbeats to begin now. Reports locks that are lost by now, or in danger."""
        entries = []
        while self._agenda and self._agenda[0][0] <= now:
            entries.append(heapq.heappop(self._agenda))
        for entry in entries:
            if _is_valid(entry):
                self._attend(entry[-1], now)
        begun = []
        while self._ready and self._under_way < self.most_at_once:
            scheduled = heapq.heappop(self._ready)[-1]
            if not scheduled.is_removed:
                self._under_way += 1
                begun.append(scheduled)
        return begun

    def done(self, scheduled: ScheduledHeartbeat, *, renewed: bool, now: float) -> None:
        """Plans the next heartbeat, after one that `due` had returned came to its end."""
        self._under_way -= 1
        scheduled.in_flight = False
        self.late_seconds += _NEWEST_WEIGHT * (now - scheduled.due_at - self.late_seconds)
        if scheduled.is_removed:
            return
        lease = scheduled.handle.lease
        if renewed:
            period = max(lease.period * _EARLIEST_SHARE, lease.period - max(0.0, self.late_seconds))
            scheduled.due_at = lease.renewed_at + period * (1 - self.random() * _SPREAD)
        else:
            rest = max(0.0, lease.ends_at - now) * _RETRY_SHARE_OF_REST
            pause = min(lease.period * _RETRY_SHARE_OF_PERIOD, rest) * (0.5 + self.random())
            scheduled.due_at = now + max(pause, _SHORTEST_RETRY_SECONDS)
        self._enter(scheduled)

    def _attend(self, scheduled: ScheduledHeartbeat, now: float) -> None:
        lease = scheduled.handle.lease
        if not lease.check():
            self.remove(scheduled.handle)
            return
        if not scheduled.in_flight and scheduled.due_at <= now:
            scheduled.in_flight = True
            heapq.heappush(self._ready, (lease.ends_at, next(self._order), scheduled))
        self._enter(scheduled)

    def _enter(self, scheduled: ScheduledHeartbeat) -> None:
        lease = scheduled.handle.lease
        moments = [lease.ends_at, lease.danger_at]
        if not scheduled.in_flight:
            moments.append(scheduled.due_at)
        scheduled.attention_at = min(moments)
        entry = (scheduled.attention_at, next(self._order), scheduled)
        heapq.heappush(self._agenda, entry)


def _is_valid(entry: _Entry) -> bool:
    at, _, scheduled = entry
    return not scheduled.is_removed and at == scheduled.attention_at
