"""Acquisitions that may be cancelled: none leaves a lock, or a place in a queue, behind."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlock.aio.bridge import run
from fairlock.aio.tasks import BackgroundTasks
from fairlock.client.acquisition import Acquisition
from fairlock.errors import ClientUnusable
from fairlock.protocol.model import Grant


class CancellableAcquisitions:
    """The acquisitions of a client that are under way."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, acquisition: Acquisition) -> Grant | None:
        """Runs an acquisition in a task of its own; undoes it if the caller is cancelled.

        Cancelled once, the acquisition itself leaves the queue before it ends. What was granted in
        the very moment of the cancellation is released.

        Raises:
            ClientUnusable: the client was closed meanwhile.
        """
        task = self._tasks.start(run(acquisition.run))
        self._under_way.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _cancel_once(task)
            await self._tasks.shielded(_undo(task, acquisition))
            caller = asyncio.current_task()
            if self._closed and caller is not None and not caller.cancelling():
                raise ClientUnusable("this AsyncLockClient is closed") from None
            raise
        finally:
            self._under_way.discard(task)

    def close(self) -> None:
        """Cancels all that are under way; their callers get an error: the client is closed."""
        self._closed = True
        for task in self._under_way:
            _cancel_once(task)


def _cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancels a task; a second cancellation would hit the cleanup after the first."""
    if not task.cancelling():
        task.cancel()


async def _undo(task: asyncio.Task[Grant | None], acquisition: Acquisition) -> None:
    [done], _ = await asyncio.wait([task])
    if not done.cancelled() and done.exception() is None and done.result() is not None:
        await run(acquisition.leave)
