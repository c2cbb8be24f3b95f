"""Heartbeats of all locks of an asyncio client: one task schedules, and each is sent by its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from fairlock.aio.bridge import run
from fairlock.aio.tasks import BackgroundTasks
from fairlock.client.heartbeat_schedule import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.heartbeats import (
    LONGEST_NAP_SECONDS,
    PAUSE_AFTER_DEFECT_SECONDS,
    SCHEDULING_FAILED,
)
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.logging import logger
from fairlock.clock import Clock


class AsyncHeartbeats:
    """Renews locks until they are removed, lost, or this is closed.

    The scheduling task is there as long as there are locks.

    Args:
        clock: tells when a heartbeat is due.
        most_at_once: how many may be under way at a time.
    """

    def __init__(self, clock: Clock, *, most_at_once: int) -> None:
        self._clock = clock
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once)
        self._changed = asyncio.Event()
        self._scheduler: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()
        self._closed = False

    def add(self, handle: LeaseHandle) -> None:
        """Renews this lock from now on, unless this is closed."""
        if self._closed:
            return
        self._schedule.add(handle)
        if self._scheduler is None:
            self._scheduler = asyncio.get_running_loop().create_task(self._run_scheduler())
        self._changed.set()

    def remove(self, handle: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        self._schedule.remove(handle)
        self._changed.set()

    def renews(self, handle: LeaseHandle) -> bool:
        """Whether a lock is being renewed; takes no mutex."""
        return not self._closed and self._schedule.has(handle)

    def handles(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        return self._schedule.handles()

    async def close(self) -> None:
        """Ends all tasks; heartbeats that are under way come to their end first."""
        self._closed = True
        for handle in self._schedule.handles():
            self.remove(handle)
        if self._scheduler is not None:
            await asyncio.wait([self._scheduler])
        await self._tasks.finish()

    async def _run_scheduler(self) -> None:
        try:
            while not self._schedule.is_empty():
                self._changed.clear()
                now = self._clock.monotonic()
                try:
                    for scheduled in self._schedule.due(now):
                        self._tasks.start(self._send(scheduled))
                except Exception:
                    logger.exception(SCHEDULING_FAILED)
                    await asyncio.sleep(PAUSE_AFTER_DEFECT_SECONDS)
                await self._nap(now)
        finally:
            self._scheduler = None

    async def _nap(self, now: float) -> None:
        nap = min(max(self._schedule.next_at() - now, 0.0), LONGEST_NAP_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(nap):
                await self._changed.wait()

    async def _send(self, scheduled: ScheduledHeartbeat) -> None:
        renewed = False
        try:
            renewed = await run(scheduled.handle.try_heartbeat)
        finally:
            self._schedule.done(scheduled, renewed=renewed, now=self._clock.monotonic())
            self._changed.set()
