"""Acquisitions that may be cancelled: none leaves a lock, or a place in a queue, behind."""

from __future__ import annotations

import asyncio
from typing import Any

from leasehold.aio.bridge import run
from leasehold.aio.tasks import BackgroundTasks
from leasehold.client.acquisition import Acquisition, TimedGrant


class CancellableAcquisitions:
    """The acquisitions of a client that are under way."""

    def __init__(self, tasks: BackgroundTasks) -> None:
        self._tasks = tasks
        self._under_way: set[asyncio.Task[Any]] = set()
        self._ended = False

    async def take(self, waiting: Acquisition) -> TimedGrant | None:
        """Runs it, in a task of its own; undoes it if the caller is cancelled.

        Cancelled once, the acquisition itself leaves the queue before it ends. What was granted in
        the very moment of the cancellation is given back.

        Raises:
            RuntimeError: the client was closed meanwhile.
        """
        acquisition = self._tasks.start(run(waiting.run))
        self._under_way.add(acquisition)
        try:
            return await asyncio.shield(acquisition)
        except asyncio.CancelledError:
            _cancel_once(acquisition)
            await self._tasks.shielded(_undo(acquisition, waiting))
            caller = asyncio.current_task()
            if self._ended and caller is not None and not caller.cancelling():
                raise RuntimeError("this AsyncLockClient is closed") from None
            raise
        finally:
            self._under_way.discard(acquisition)

    def end(self) -> None:
        """Cancels all that are under way; their callers are told that the client is closed."""
        self._ended = True
        for acquisition in self._under_way:
            _cancel_once(acquisition)


def _cancel_once(acquisition: asyncio.Task[Any]) -> None:
    """A second cancellation would hit what cleans up after the first."""
    if not acquisition.cancelling():
        acquisition.cancel()


async def _undo(acquisition: asyncio.Task[TimedGrant | None], waiting: Acquisition) -> None:
    [done], _ = await asyncio.wait([acquisition])
    if not done.cancelled() and done.exception() is None and done.result() is not None:
        await run(waiting.leave)
