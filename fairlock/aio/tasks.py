"""Tasks that go on when the call that began them is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, TypeVar

from fairlock.client.callbacks import CLOSE_SECONDS, STILL_BUSY
from fairlock.client.logging import logger

_T = TypeVar("_T")


class BackgroundTasks:
    """Holds references to running tasks; a client waits for them when it is closed."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._callbacks: set[asyncio.Task[Any]] = set()
        self._finishing: set[asyncio.Task[Any] | None] = set()

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
            unfinished: gets the task of work that goes on after a cancellation, until its end.
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

    def call_soon(self, description: str, callback: Callable[[], object]) -> None:
        """Calls a user's callback soon, and awaits what it returns; logs what it raises."""
        task = self.start(_call(description, callback))
        self._callbacks.add(task)
        task.add_done_callback(self._callbacks.discard)

    async def finish(self) -> None:
        """Waits for all tasks but those that wait here themselves: callbacks may close, too.

        For users' callbacks 10 s at most.
        """
        this_task = asyncio.current_task()
        self._finishing.add(this_task)
        try:
            while ours := self._running - self._finishing - self._callbacks:
                await asyncio.wait(ours)
            if callbacks := self._callbacks - self._finishing:
                _, busy = await asyncio.wait(callbacks, timeout=CLOSE_SECONDS)
                if busy - self._finishing:
                    logger.warning(STILL_BUSY)
            while ours := self._running - self._finishing - self._callbacks:
                await asyncio.wait(ours)
        finally:
            self._finishing.discard(this_task)


def is_another_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs in another event loop than this one.

    Connections and locks of asyncio serve one loop: in another one they hang, or fail in a way that
    looks like an outage.
    """
    try:
        return asyncio.get_running_loop() is not loop
    except RuntimeError:  # In none.
        return False


async def _call(description: str, callback: Callable[[], object]) -> None:
    try:
        answer: Awaitable[object] | object = callback()
        if isawaitable(answer):
            await answer
    except Exception:
        logger.exception("%s failed", description)


def _log_failure(task: asyncio.Task[Any]) -> None:
    """Logs what a task raised whose caller was cancelled."""
    if not task.cancelled() and task.exception() is not None:
        logger.error("work that outlived its cancelled caller failed", exc_info=task.exception())
