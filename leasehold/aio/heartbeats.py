"""Heartbeats of all locks of an asyncio client: one task that plans, one for each under way."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from leasehold.aio.bridge import run
from leasehold.aio.tasks import BackgroundTasks
from leasehold.backoff import Random
from leasehold.client.heartbeat_schedule import HeartbeatSchedule, ScheduledHeartbeat
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.logging import failsafe_logger
from leasehold.clock import Clock
from leasehold.errors import LockLost, LockStoreUnavailable

_logger: Final = failsafe_logger()

_LONGEST_NAP_SECONDS: Final = 5.0
"""A wait does not notice that the machine was suspended; so none is long."""
_PAUSE_AFTER_A_DEFECT_SECONDS: Final = 0.5


class AsyncHeartbeats:
    """Renews locks until they are dropped, lost, or this is closed.

    The task that plans is there as long as there are locks.

    Args:
        clock: tells when a heartbeat is due.
        most_at_once: how many may be under way at a time.
        random: source of jitter.
    """

    def __init__(self, clock: Clock, *, most_at_once: int, random: Random = random.random) -> None:
        self._clock = clock
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once, random=random)
        self._changed = asyncio.Event()
        self._planner: asyncio.Task[None] | None = None
        self._beats = BackgroundTasks()
        self._closed = False

    def keep(self, held: LeaseHandle) -> None:
        """Renews this lock from now on, unless this is closed."""
        if self._closed:
            return
        self._schedule.remove(held)
        self._schedule.add(held)
        if self._planner is None:
            self._planner = asyncio.get_running_loop().create_task(self._plan())
        self._changed.set()

    def drop(self, held: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        self._schedule.remove(held)
        self._changed.set()

    def locks(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        return self._schedule.locks()

    async def close(self) -> None:
        """Ends all tasks; heartbeats that are under way come to their end first."""
        self._closed = True
        for held in self._schedule.locks():
            self.drop(held)
        if self._planner is not None:
            await asyncio.wait([self._planner])
        await self._beats.finish()

    async def _plan(self) -> None:
        try:
            while not self._schedule.is_empty():
                self._changed.clear()
                now = self._clock.monotonic()
                try:
                    for turn in self._schedule.due(now):
                        self._beats.start(self._beat(turn))
                except Exception:
                    _logger.exception("the planning of heartbeats met a defect, and goes on")
                    await asyncio.sleep(_PAUSE_AFTER_A_DEFECT_SECONDS)
                await self._nap(now)
        finally:
            self._planner = None

    async def _nap(self, now: float) -> None:
        next_at = self._schedule.next_at()
        nap = _LONGEST_NAP_SECONDS if next_at is None else min(next_at - now, _LONGEST_NAP_SECONDS)
        try:
            async with asyncio.timeout(max(nap, 0.0)):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _beat(self, turn: ScheduledHeartbeat) -> None:
        renewed = False
        try:
            await run(turn.held.beat)
            renewed = True
        except LockLost:
            pass  # The lock has told whoever has to know.
        except LockStoreUnavailable as error:
            _logger.warning("heartbeat: %s", error)
        except Exception:
            # No permission, say, or no table: that may be put right before the lease is over.
            _logger.exception("heartbeat failed; it is tried again until the lease is over")
        finally:
            self._schedule.done(turn, renewed=renewed, now=self._clock.monotonic())
            self._changed.set()
