"""`AsyncHold`: what `AsyncLockClient.hold` returns; and which task is inside of which locks."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from fairlock.aio.lock import AsyncLock
from fairlock.client.entered_locks import Entered, EnteredLocks
from fairlock.client.holding import BaseHold


class AsyncEnteredLocks(EnteredLocks):
    """The same by task. A task that another one starts inside its block is another one.

    Whether the outer task waits for it there, nobody can tell.
    """

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


class AsyncHold(BaseHold):
    """`async with locks.hold("orders/7") as lock:` acquires, runs the body, releases."""

    def __init__(self, name: str, block: AbstractAsyncContextManager[AsyncLock]) -> None:
        super().__init__(name, statement="async with")
        self._block = block

    async def __aenter__(self) -> AsyncLock:
        """Acquires the lock, as `AsyncLockClient.acquire` does."""
        self._enter_once()
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases the lock; see `LockClient.hold`."""
        await self._block.__aexit__(kind, error, traceback)
