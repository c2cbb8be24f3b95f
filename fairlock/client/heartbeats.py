"""Heartbeats of all locks of a client: one thread schedules, a bounded pool of threads sends.

Every lock has one moment at which it needs attention: its heartbeat is due, it comes into danger,
or its lease is over. Heartbeats that are due and find no worker wait; the lease that ends first
goes first. A lock whose max_hold is over takes the place of a heartbeat once more, and is released.

Heartbeats of locks that were acquired together would stay together. So first and later periods are
shortened at random; and if recent heartbeats were late, all begin earlier by as much.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from fairlock.backoff import Random
from fairlock.client.acquisition import Acquisition
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.reporting import logger
from fairlock.client.threads import WorkerPool, is_held_by_this_thread
from fairlock.clock import Clock

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
    """One lock's next heartbeat; times are readings of the monotonic clock.

    Attributes:
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
        """Plans heartbeats of a lock, and plans them again if its lease has another length."""
        self.remove(handle)
        lease = handle.lease
        share = _LEAST_FIRST_SHARE + self.random() * (1 - _LEAST_FIRST_SHARE)
        due_at = lease.renewed_at + lease.period * share
        if due_at < math.inf:
            # One of the user's own that failed may have left a lease that ends before that.
            due_at = min(due_at, lease.danger_at)
        scheduled = self._scheduled[handle] = ScheduledHeartbeat(handle, due_at)
        self._enter(scheduled)

    def remove(self, handle: LeaseHandle) -> None:
        """Plans no heartbeat of a lock any more."""
        scheduled = self._scheduled.pop(handle, None)
        if scheduled is not None:
            scheduled.is_removed = True
        if len(self._agenda) > 2 * len(self._scheduled) + _MOST_STALE_ENTRIES:
            # A heap gives up only its first entry. The others of removed locks stay until there are
            # more of them than of live ones, so that removing costs no search.
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
        return not self._scheduled and not self._ready

    def is_idle(self) -> bool:
        """Whether no lock has heartbeats, and none is under way any more."""
        return self.is_empty() and not self._under_way

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
        # The lock was removed or added again while this heartbeat was under way; or this was the
        # release at the end of max_hold, whose next entry would release once more.
        if self._scheduled.get(scheduled.handle) is not scheduled:
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
            if lease.is_outlived:
                # Waits behind a heartbeat under way, whose answer would else be the last word.
                self._begin_soon(ScheduledHeartbeat(scheduled.handle, due_at=now, in_flight=True))
            return
        if not scheduled.in_flight and scheduled.due_at <= now:
            scheduled.in_flight = True
            self._begin_soon(scheduled)
        self._enter(scheduled)

    def _begin_soon(self, scheduled: ScheduledHeartbeat) -> None:
        # The one whose lease ends first goes first: after an outage all are due at once.
        entry = (scheduled.handle.lease.ends_at, next(self._order), scheduled)
        heapq.heappush(self._ready, entry)

    def _enter(self, scheduled: ScheduledHeartbeat) -> None:
        lease = scheduled.handle.lease
        moments = [lease.ends_at, lease.danger_at]
        # A heartbeat under way may hang until after the end of the lease. So the end is watched all
        # the same, and only the next heartbeat waits for it.
        if not scheduled.in_flight:
            moments.append(scheduled.due_at)
        scheduled.attention_at = min(moments)
        entry = (scheduled.attention_at, next(self._order), scheduled)
        heapq.heappush(self._agenda, entry)


def _is_valid(entry: _Entry) -> bool:
    at, _, scheduled = entry
    return not scheduled.is_removed and at == scheduled.attention_at


LONGEST_NAP_SECONDS: Final = 5.0
"""A wait does not notice that the machine was suspended; so none is long."""
PAUSE_AFTER_DEFECT_SECONDS: Final = 0.5
SCHEDULING_FAILED: Final = "the scheduling of heartbeats failed, and goes on"


Releasable = LeaseHandle | Acquisition
"""What the end of a client may have to end."""


class Unreleased:
    """Locks whose release has begun, and acquisitions: the end of the client tries again."""

    def __init__(self) -> None:
        self._all: dict[Releasable, None] = {}
        self._mutex = threading.RLock()

    def add(self, unreleased: Releasable) -> None:
        """Remembers a lock whose release begins, or an acquisition that begins."""
        with self._mutex:
            while self._all and (oldest := next(iter(self._all))).is_over():
                del self._all[oldest]
            self._all[unreleased] = None

    def discard_if_settled(self, unreleased: Releasable) -> None:
        """Forgets it, if there is nothing left to be released."""
        if unreleased.is_settled():
            with self._mutex:
                self._all.pop(unreleased, None)

    def unsettled(self) -> list[Releasable]:
        """What is perhaps not free."""
        with self._mutex:
            return [each for each in self._all if each.is_abandoned() and not each.is_over()]


class BaseHeartbeats(ABC):
    """Renews locks until they are removed, lost, or this is closed."""

    def __init__(self, clock: Clock, *, most_at_once: int) -> None:
        self._clock = clock
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once)
        self._closed = False

    @abstractmethod
    def add(self, handle: LeaseHandle) -> None:
        """Renews this lock from now on, unless this is closed."""

    @abstractmethod
    def remove(self, handle: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""

    def renews(self, handle: LeaseHandle) -> bool:
        """Whether a lock is being renewed; takes no mutex."""
        return not self._closed and self._schedule.has(handle)


class Heartbeats(BaseHeartbeats):
    """Heartbeats of threads.

    Threads are started when the first lock comes, and more of the pool when heartbeats are slow.
    They do not keep the process alive, and renew as long as it lives. They end with the last lock
    that comes after no one `is_wanted`: a thread may be impossible to start later.
    """

    def __init__(
        self, clock: Clock, *, most_at_once: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(clock, most_at_once=most_at_once)
        self._most_at_once = most_at_once
        self._is_wanted = is_wanted
        # Entered as it is, and not through the condition: an interrupt in the Python code of
        # `Condition.__enter__` or `__exit__` would leave it locked for ever.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._wakes_at = 0.0
        self._scheduler: threading.Thread | None = None
        self._pool: WorkerPool | None = None

    def add(self, handle: LeaseHandle) -> None:
        """Renews this lock from now on; raises RuntimeError if no thread can be started."""
        with self._mutex:
            if self._scheduler is None and not self._closed:
                self._start()
            self._schedule.add(handle)
            # Only then: to wake the scheduler for each new lock would cost more than it brings.
            if self._schedule.next_at() < self._wakes_at:
                self._changed.notify()

    def remove(self, handle: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        with self._mutex:
            self._schedule.remove(handle)

    def handles(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        with self._mutex:
            return self._schedule.handles()

    def release_all(self, handles: Sequence[Releasable]) -> None:
        """Releases all that a client still holds or waits for, at its end; logs what fails."""
        pool = WorkerPool(min(self._most_at_once, len(handles)), name="fairlock-close")
        for handle in handles:
            if isinstance(handle, LeaseHandle):
                self.remove(handle)
            if handle.is_interrupted:  # A thread of the pool would wait for this one.
                handle.release_at_close()
                continue
            try:
                pool.submit(handle.release_at_close)
            except RuntimeError:  # No thread can be started.
                handle.release_at_close()
        pool.close()

    def close(self, *, wait: bool = True) -> None:
        """Ends all threads; may `wait` for heartbeats under way, but not in a signal handler."""
        with self._mutex:
            self._closed = True
            self._changed.notify()
            scheduler, pool = self._scheduler, self._pool
        # A signal handler in the middle of `add` holds the mutex that the scheduler needs to end.
        waits = wait and not is_held_by_this_thread(self._mutex)
        if waits and scheduler is not None:
            scheduler.join()
        if pool is not None:
            pool.close(wait=waits)

    def _start(self) -> None:
        name = "fairlock-scheduler"
        scheduler = threading.Thread(target=self._run_scheduler, name=name, daemon=True)
        self._pool = WorkerPool(self._most_at_once, name="fairlock-heartbeat")
        scheduler.start()
        self._scheduler = scheduler  # An interrupt before this makes it end: see below.

    def _run_scheduler(self) -> None:
        with self._mutex:
            # An interrupt came between its start and the note of it: another was or will be
            # started.
            if self._scheduler is not threading.current_thread():
                return
            while not self._closed and (self._is_wanted() or not self._schedule.is_idle()):
                try:
                    nap = self._begin_due_heartbeats()
                except Exception:
                    logger.exception(SCHEDULING_FAILED)
                    nap = PAUSE_AFTER_DEFECT_SECONDS
                # Gives the mutex up: `add`, `remove` and the ends of heartbeats come in between,
                # and an earlier due time wakes it by `notify`.
                self._changed.wait(nap)
            # Under the same mutex as the last look: a lock that comes now starts threads of its
            # own.
            if not self._closed:
                pool, self._scheduler, self._pool = self._pool, None, None
                if pool is not None:
                    pool.close(wait=False)

    def _begin_due_heartbeats(self) -> float:
        """Returns for how many seconds there is nothing to do then."""
        now = self._clock.monotonic()
        for scheduled in self._schedule.due(now):
            self._begin(scheduled)
        nap = min(max(self._schedule.next_at() - now, 0.0), LONGEST_NAP_SECONDS)
        self._wakes_at = now + nap
        return nap

    def _begin(self, scheduled: ScheduledHeartbeat) -> None:
        """Gives a heartbeat to the pool; tries again soon if there is no thread for it."""
        try:
            if self._pool is not None:
                self._pool.submit(partial(self._send, scheduled))
        except RuntimeError as error:
            name = scheduled.handle.lease.lock_name
            logger.warning("lock %r: no thread for its heartbeat: %s", name, error)
            self._schedule.done(scheduled, renewed=False, now=self._clock.monotonic())

    def _send(self, scheduled: ScheduledHeartbeat) -> None:
        renewed = False
        try:
            renewed = scheduled.handle.try_heartbeat()
        finally:
            # Whatever was raised: a heartbeat that stayed "under way" would take a place of
            # `most_at_once` for ever, and its lock would never be renewed again.
            with self._mutex:
                self._schedule.done(scheduled, renewed=renewed, now=self._clock.monotonic())
                self._changed.notify()
