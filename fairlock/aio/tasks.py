"""The tasks of an asyncio client, none of which is lost when a caller is cancelled.

A task that must finish is shielded, and `close` waits for it. An acquisition that is cancelled
leaves no lock, and no place in a queue, behind. One task schedules the heartbeats of all locks;
each is sent by a task of its own. Here, too: what a task learns when its lock is lost, and which
task is inside of which locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from fairlock.aio.bridge import run
from fairlock.client import local_lease
from fairlock.client.acquisition import Acquisition
from fairlock.client.arguments import AskedEvent
from fairlock.client.entered_locks import Entered, EnteredLocks
from fairlock.client.heartbeats import (
    LONGEST_NAP_SECONDS,
    PAUSE_AFTER_DEFECT_SECONDS,
    SCHEDULING_FAILED,
    BaseHeartbeats,
    ScheduledHeartbeat,
)
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.reporting import logger
from fairlock.client.threads import CLOSE_SECONDS, STILL_BUSY
from fairlock.clock import Clock
from fairlock.protocol.model import Grant

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

        Until its end, `unfinished` has the task of work that goes on after a cancellation.
        """
        has_begun = False

        async def begin() -> _T:
            nonlocal has_begun
            has_begun = True
            return await work

        task = self.start(begin())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not has_begun and task.cancelled():
                # All tasks were cancelled, as the end of `asyncio.run` does, before this one's
                # first step. That end waits for the caller only, so the caller waits for the work.
                task = self.start(begin())
                await asyncio.wait([task])
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
        """Waits for all tasks but those that wait here themselves; for callbacks, 10 s at most."""
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
    """Whether the caller runs in another event loop than this one."""
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


def cancel_once(task: asyncio.Task[Any]) -> None:
    """Cancels a task; a second cancellation would hit the cleanup after the first."""
    if not task.cancelling():
        task.cancel()


async def undo(task: asyncio.Task[Grant | None], acquisition: Acquisition) -> None:
    """Leaves neither a grant nor a place behind, although a program cancels all tasks, and this."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    while not acquisition.is_settled():
        try:
            await run(acquisition.leave)
        except asyncio.CancelledError:
            continue
        except Exception:
            acquisition.settle()
            name = acquisition.request.lock_name
            logger.exception("lock %r: granted to a cancelled task; the lease ends it", name)


_WERE_CANCELLED: Final = (
    "the task of the heartbeats was cancelled with locks held (%d): they are renewed again; close "
    "the client to end that"
)


class AsyncHeartbeats(BaseHeartbeats):
    """Heartbeats of tasks.

    The scheduling task is there as long as there are locks, even if the program cancels all tasks.
    """

    def __init__(self, clock: Clock, *, most_at_once: int) -> None:
        super().__init__(clock, most_at_once=most_at_once)
        self._changed = asyncio.Event()
        self._scheduler: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    def add(self, handle: LeaseHandle) -> None:
        """Renews this lock from now on, unless this is closed."""
        if self._closed:
            return
        self._schedule.add(handle)
        self._begin()
        self._changed.set()

    def remove(self, handle: LeaseHandle) -> None:
        """Begins no further heartbeat of this lock."""
        self._schedule.remove(handle)
        self._changed.set()

    def handles(self) -> list[LeaseHandle]:
        """The locks that are being renewed."""
        return self._schedule.handles()

    async def close(self) -> None:
        """Ends all tasks; heartbeats that are under way come to their end first."""
        self._closed = True
        for handle in self._schedule.handles():
            self.remove(handle)
        if self._scheduler is not None and not self._scheduler.done():
            await asyncio.wait([self._scheduler])
        await self._tasks.finish()

    def _begin(self) -> None:
        if self._scheduler is None or self._scheduler.done():
            self._scheduler = asyncio.get_running_loop().create_task(self._run_scheduler())
            self._scheduler.add_done_callback(self._begin_again_if_cancelled)

    def _begin_again_if_cancelled(self, scheduler: asyncio.Task[None]) -> None:
        """Goes on if a program cancels all tasks: later, as the end of the loop may come next."""
        if scheduler.cancelled():
            scheduler.get_loop().call_later(PAUSE_AFTER_DEFECT_SECONDS, self._begin_again)

    def _begin_again(self) -> None:
        if not self._closed and (handles := self._schedule.handles()):
            logger.warning(_WERE_CANCELLED, len(handles))
            self._begin()

    async def _run_scheduler(self) -> None:
        while not self._schedule.is_empty():
            self._changed.clear()
            now = self._clock.monotonic()
            try:
                for scheduled in self._schedule.due(now):
                    self._send(scheduled)
            except Exception:
                logger.exception(SCHEDULING_FAILED)
                await asyncio.sleep(PAUSE_AFTER_DEFECT_SECONDS)
            nap = min(max(self._schedule.next_at() - now, 0.0), LONGEST_NAP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._changed.wait()

    def _send(self, scheduled: ScheduledHeartbeat) -> None:
        def end(sent: asyncio.Task[bool]) -> None:
            renewed = not sent.cancelled() and sent.exception() is None and sent.result()
            self._schedule.done(scheduled, renewed=renewed, now=self._clock.monotonic())
            self._changed.set()

        # Not at the end of a coroutine, which never begins if it is cancelled before.
        self._tasks.start(run(scheduled.handle.try_heartbeat)).add_done_callback(end)


class AsyncLostEvent(AskedEvent, asyncio.Event):
    """As `LostEvent`: it checks the lease, also after a blocked loop."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        """Whether the lock is lost."""
        return super().is_set() or self._is_lost()

    async def wait(self) -> bool:  # type: ignore[override]  # the stubs say Literal[True]
        """Waits until the lock is lost."""
        while not self.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(local_lease.LONGEST_NAP_SECONDS):
                    await super().wait()
        return True


@asynccontextmanager
async def cancelled_when_lost(
    lost: asyncio.Event, check: Callable[[], None]
) -> AsyncIterator[None]:
    """Cancels the block when its lock is lost, and then raises what `check` does."""

    async def expire(bound: asyncio.Timeout) -> None:
        await lost.wait()
        bound.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(None) as bound:
            watcher = asyncio.create_task(expire(bound))
            try:
                yield
            finally:
                watcher.cancel()
    except TimeoutError:
        if bound.expired():
            check()
        raise


class AsyncEnteredLocks(EnteredLocks):
    """The same by task. A task that another one starts inside its block is another one."""

    def __init__(self) -> None:
        super().__init__()
        self._of_tasks: WeakKeyDictionary[asyncio.Task[Any], Entered] = WeakKeyDictionary()

    def mine(self) -> Entered:
        """The locks that the calling task is inside of."""
        task = asyncio.current_task()
        return [] if task is None else self._of_tasks.setdefault(task, [])

    @staticmethod
    def _who() -> str:
        return "task"
