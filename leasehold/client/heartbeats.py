"""Heartbeats of all locks of a client: one thread that plans, a bounded pool that sends."""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import Final

from leasehold.backoff import Random
from leasehold.client.heartbeat_schedule import HeartbeatSchedule, ScheduledHeartbeat
from leasehold.client.interrupts import is_inside
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.logging import failsafe_logger
from leasehold.client.worker_pool import WorkerPool
from leasehold.clock import Clock
from leasehold.errors import LockLost, LockStoreUnavailable

_logger: Final = failsafe_logger()

_LONGEST_NAP_SECONDS: Final = 5.0
"""A wait does not notice that the machine was suspended; so none is long."""
_PAUSE_AFTER_A_DEFECT_SECONDS: Final = 0.5


class Heartbeats:
    """Renews locks until they are dropped, lost, or this is closed.

    Threads are started when the first lock comes, and more of the pool when heartbeats are slow.
    They do not keep the process alive, and renew as long as it lives: also when its main thread has
    ended and others go on.

    Args:
        clock: tells when a heartbeat is due.
        most_at_once: size of the pool.
        random: source of jitter.
    """

    def __init__(self, clock: Clock, *, most_at_once: int, random: Random = random.random) -> None:
        self._clock = clock
        self._most_at_once = most_at_once
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once, random=random)
        # Entered as it is, and not through the condition: an interrupt in the Python code of
        # `Condition.__enter__` or `__exit__` would leave it locked for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._awake_at = 0.0
        self._planner: threading.Thread | None = None
        self._pool: WorkerPool | None = None
        self._closed = False

    def keep(self, held: LeaseHandle) -> None:
        """Renews this lock from now on.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            if self._planner is None and not self._closed:
                self._start()
            self._schedule.add(held)
            next_at = self._schedule.next_at()
            if next_at is not None and next_at < self._awake_at:
                self._changed.notify()

    def drop(self, held: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        with self._lock:
            self._schedule.remove(held)

    def locks(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        with self._lock:
            return self._schedule.locks()

    def close(self, *, wait: bool = True) -> None:
        """Ends all threads.

        Args:
            wait: whether heartbeats that are under way come to their end first. A signal handler
                must not wait for one that waits for what it has interrupted.
        """
        with self._lock:
            self._closed = True
            self._changed.notify()
            planner, crew = self._planner, self._pool
        if not wait or is_inside(self._lock):
            if crew is not None:
                crew.close(wait=False)
            return
        if planner is not None:
            planner.join()
        if crew is not None:
            crew.close()

    def _start(self) -> None:
        planner = threading.Thread(target=self._plan, name="leasehold-rota", daemon=True)
        planner.start()
        self._planner = planner
        self._pool = WorkerPool(self._most_at_once, name="leasehold-beat")

    def _plan(self) -> None:
        with self._lock:
            while not self._closed:
                try:
                    nap = self._begin_what_is_due()
                except Exception:
                    _logger.exception("the planning of heartbeats met a defect, and goes on")
                    nap = _PAUSE_AFTER_A_DEFECT_SECONDS
                self._changed.wait(nap)

    def _begin_what_is_due(self) -> float:
        """Returns for how many seconds there is nothing to do then."""
        now = self._clock.monotonic()
        for turn in self._schedule.due(now):
            self._begin(turn)
        next_at = self._schedule.next_at()
        nap = _LONGEST_NAP_SECONDS if next_at is None else next_at - now
        nap = min(max(nap, 0.0), _LONGEST_NAP_SECONDS)
        self._awake_at = now + nap
        return nap

    def _begin(self, turn: ScheduledHeartbeat) -> None:
        """Hands a heartbeat to the crew; it is tried again soon if there is no thread for it."""
        try:
            if self._pool is not None:
                self._pool.begin(partial(self._beat, turn))
        except RuntimeError as error:
            _logger.warning("heartbeat: %s", error)
            self._schedule.done(turn, renewed=False, now=self._clock.monotonic())

    def _beat(self, turn: ScheduledHeartbeat) -> None:
        renewed = False
        try:
            turn.held.beat()
            renewed = True
        except LockLost:
            pass  # The lock has told whoever has to know.
        except LockStoreUnavailable as error:
            _logger.warning("heartbeat: %s", error)
        except Exception:
            # No permission, say, or no table: that may be put right before the lease is over.
            _logger.exception("heartbeat failed; it is tried again until the lease is over")
        finally:
            with self._lock:
                self._schedule.done(turn, renewed=renewed, now=self._clock.monotonic())
                self._changed.notify()
