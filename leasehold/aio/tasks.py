"""BackgroundTasks that go on when the call that began them is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Final, TypeVar

from leasehold.client.logging import failsafe_logger

_logger: Final = failsafe_logger()

_T = TypeVar("_T")


class BackgroundTasks:
    """BackgroundTasks that somebody has to keep, and that a client waits for at its end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._waiting: set[asyncio.Task[Any] | None] = set()

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Begins the work now."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def shielded(
        self, work: Coroutine[Any, Any, _T], *, unfinished: set[asyncio.Task[Any]] | None = None
    ) -> _T:
        """Does the work; a cancellation ends the waiting for it, not the work itself.

        Args:
            work: to be done.
            unfinished: where work is kept as long as it goes on without anybody waiting for it.
        """
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            if unfinished is not None and not task.done():
                unfinished.add(task)
                task.add_done_callback(unfinished.discard)
            raise

    def tell(self, what: str, callback: Callable[[], object]) -> None:
        """Calls a user's callback soon, and awaits what it returns; logs what it raises."""
        self.start(_call(what, callback))

    async def finish(self) -> None:
        """Waits for all of them but those that wait here themselves: callbacks may close, too."""
        me = asyncio.current_task()
        self._waiting.add(me)
        try:
            while others := self._running - self._waiting:
                await asyncio.wait(others)
        finally:
            self._waiting.discard(me)


async def _call(what: str, callback: Callable[[], object]) -> None:
    try:
        answer: Awaitable[object] | object = callback()
        if isawaitable(answer):
            await answer
    except Exception:
        _logger.exception("%s failed", what)


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it any more who could be told."""
    if not task.cancelled() and task.exception() is not None:
        _logger.error("what was to be done after a cancellation failed", exc_info=task.exception())
