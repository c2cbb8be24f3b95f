"""Heartbeats of all locks of a client: one thread schedules, a bounded pool of threads sends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from fairlock.client.heartbeat_schedule import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.logging import logger
from fairlock.client.process import is_held_by_this_thread
from fairlock.client.worker_pool import WorkerPool
from fairlock.clock import Clock

LONGEST_NAP_SECONDS: Final = 5.0
"""A wait does not notice that the machine was suspended; so none is long."""
PAUSE_AFTER_DEFECT_SECONDS: Final = 0.5
SCHEDULING_FAILED: Final = "the scheduling of heartbeats failed, and goes on"


class Heartbeats:
    """Renews locks until they are removed, lost, or this is closed.

    Threads are started when the first lock comes, and more of the pool when heartbeats are slow.
    They do not keep the process alive, and renew as long as it lives: also when its main thread has
    ended and others go on. Some seconds after nobody wants them any more they end.

    Args:
        clock: tells when a heartbeat is due.
        most_at_once: size of the pool.
        is_wanted: whether a lock may come; else the threads end with the last lock. Not before: a
            thread may be impossible to start later, at the end of the interpreter for instance.
    """

    def __init__(
        self, clock: Clock, *, most_at_once: int, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self._clock = clock
        self._most_at_once = most_at_once
        self._is_wanted = is_wanted
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once)
        # Entered as it is, and not through the condition: an interrupt in the Python code of
        # `Condition.__enter__` or `__exit__` would leave it locked for ever.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._wakes_at = 0.0
        self._scheduler: threading.Thread | None = None
        self._pool: WorkerPool | None = None
        self._closed = False

    def add(self, handle: LeaseHandle) -> None:
        """Renews this lock from now on.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._mutex:
            if self._scheduler is None and not self._closed:
                self._start()
            self._schedule.add(handle)
            if self._schedule.next_at() < self._wakes_at:
                self._changed.notify()

    def remove(self, handle: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        with self._mutex:
            self._schedule.remove(handle)

    def renews(self, handle: LeaseHandle) -> bool:
        """Whether a lock is being renewed; takes no mutex."""
        return not self._closed and self._schedule.has(handle)

    def handles(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        with self._mutex:
            return self._schedule.handles()

    def close(self, *, wait: bool = True) -> None:
        """Ends all threads.

        Args:
            wait: whether heartbeats that are under way come to their end first. A signal handler
                must not wait for one that waits for what the handler has interrupted.
        """
        with self._mutex:
            self._closed = True
            self._changed.notify()
            scheduler, pool = self._scheduler, self._pool
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
            if self._scheduler is not threading.current_thread():
                return
            while not self._closed and (self._is_wanted() or not self._schedule.is_idle()):
                try:
                    nap = self._begin_due_heartbeats()
                except Exception:
                    logger.exception(SCHEDULING_FAILED)
                    nap = PAUSE_AFTER_DEFECT_SECONDS
                self._changed.wait(nap)
            if not self._closed:
                self._end()

    def _end(self) -> None:
        """Ends the threads; a lock that comes all the same starts others."""
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
            with self._mutex:
                self._schedule.done(scheduled, renewed=renewed, now=self._clock.monotonic())
                self._changed.notify()
