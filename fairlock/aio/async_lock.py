"""`AsyncLock`: one lock that this process holds, renewed by the event loop.

Beside it stand `AsyncHold`, which `AsyncLockClient.hold` returns, the same for several locks, and
`lead`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from fairlock.aio.bridge import BridgedMutex, run, with_awaited_calls
from fairlock.aio.tasks import (
    AsyncHeartbeats,
    AsyncLostEvent,
    BackgroundTasks,
    cancelled_when_lost,
    is_another_running,
)
from fairlock.client.arguments import LockOptions, with_explained_calls
from fairlock.client.base_lock import BaseLock
from fairlock.client.blocks import BaseClient, BaseHold, LocksInOrder
from fairlock.client.connection import Connection
from fairlock.client.leader import Term, check_work
from fairlock.client.reporting import LockEventKind
from fairlock.client.services import ClientServices
from fairlock.clock import Seconds
from fairlock.errors import ClientUnusable, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.protocol.model import AcquireRequest, Grant

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncLockServices(ClientServices):
    """What all locks of an `AsyncLockClient` use. Heartbeats have connections of their own."""

    handle_connection: Connection
    heartbeats: AsyncHeartbeats
    tasks: BackgroundTasks


@with_awaited_calls
@with_explained_calls
class AsyncLock(BaseLock):
    """One lock that this process holds, until it is released or lost.

    The guarantees are those of `fairlock.Lock`. Heartbeats also need the event loop: code that
    blocks it for longer than the lease loses the lock. `check`, `lost.is_set()` and `remaining`
    read the clock, so they notice even then.

    `AsyncLockClient` makes it, for the event loop in which it was acquired.
    """

    _services: AsyncLockServices

    def __init__(
        self,
        services: AsyncLockServices,
        request: AcquireRequest,
        options: LockOptions[AsyncCallback],
        granted: Grant,
    ) -> None:
        super().__init__(
            *(services, request, options, granted),
            handle_services=replace(services, connection=services.handle_connection),
            mutex=BridgedMutex(),
        )
        self._loop = asyncio.get_running_loop()
        self._unfinished_writes: set[asyncio.Task[Any]] = set()
        self._lost = AsyncLostEvent(self._handle.lease.is_lost)
        if not self.shared:
            self._guarded()  # Its AWS client exists now; `condition_check` cannot wait for one.
        self._begin_heartbeats()

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lock is lost: its lease has ended, or another owner holds the lock.

        A release does not set it.
        """
        return self._lost

    async def heartbeat(
        self, *, lease: Seconds | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Renews the lease now, by one request. The client does so by itself, too.

        Arguments and errors are those of `fairlock.Lock.heartbeat`.
        """
        self._require_own_loop()
        await self._services.tasks.shielded(run(self._renew, lease, data))

    async def release(self) -> bool:
        """Releases the lock. Guarantees, result and errors are those of `fairlock.Lock.release`.

        If the task that releases is cancelled meanwhile, the release continues. If it fails, the
        end of `async with AsyncLockClient(…)` tries once more.
        """
        self._require_own_loop()
        self._end_heartbeats()
        try:
            return await self._services.tasks.shielded(run(self._handle.release))
        finally:
            self._services.unreleased.discard_if_settled(self._handle)

    async def transact_write(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        token: str | None = None,
        release: bool = False,
    ) -> None:
        """Commits all items if the lock is held at that moment, or none of them. One request.

        Arguments and errors are those of `fairlock.Lock.transact_write`. If the task is cancelled
        meanwhile, the transaction continues, and its outcome is unknown: repeat the call with the
        same token.
        """
        self._require_own_loop()
        while self._unfinished_writes:  # A repeat must know the outcome of the call before it.
            await asyncio.wait(self._unfinished_writes)
        call = self._guarded().call(items, token=token, release=release)
        await self._services.tasks.shielded(
            run(self._write, call), unfinished=self._unfinished_writes
        )

    async def __aenter__(self) -> Self:
        """The lock itself."""
        self._enter()
        return self

    async def __aexit__(
        self, _kind: object, error: BaseException | None, _traceback: object
    ) -> None:
        """Releases, as `AsyncLockClient.hold` does; in another event loop, ends its heartbeats."""
        self._leave()
        if self._handle.lease.is_from_parent_process:
            return
        if is_another_running(self._loop):  # `release` refuses that, so the lease has to end it.
            self._call_in_loop(lambda: self._services.heartbeats.remove(self._handle))
        try:
            if not await self.release():
                self.check()
        except Exception as lock_error:  # noqa: BLE001 - whatever it is, it is raised or logged
            self._raise_or_note(lock_error, error)

    def _is_renewed(self) -> bool:
        return not self._loop.is_closed() and super()._is_renewed()

    def _require_own_loop(self) -> None:
        if not self._handle.lease.is_from_parent_process and is_another_running(self._loop):
            message = f"lock {self.name!r} belongs to another event loop: use it there"
            raise ClientUnusable(message)

    def _tell(self, kind: LockEventKind, reason: str) -> None:
        if kind is LockEventKind.LOST:
            self._call_in_loop(self._lost.set)
        super()._tell(kind, reason)

    def _call_soon(self, description: str, callback: Callable[[], Any]) -> None:
        self._call_in_loop(lambda: self._services.tasks.call_soon(description, callback))

    def _call_in_loop(self, action: Callable[[], None]) -> None:
        """Calls in the event loop: a loss may be found by another thread, or after its end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)


AsyncCallback = Callable[[AsyncLock, str], Awaitable[object] | None]
"""Called with a lock and the reason, in the event loop; a coroutine is awaited.

What it raises is logged.
"""


_Within = TypeVar("_Within")


class AsyncBlock(BaseHold, Generic[_Within]):
    """One that `async with` enters."""

    def __init__(self, name: object, block: AbstractAsyncContextManager[_Within]) -> None:
        super().__init__(name, statement="async with")
        self._block = block

    async def __aenter__(self) -> _Within:
        """Acquires, as `AsyncLockClient.acquire` does; several locks one after the other."""
        self._enter_once()
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases; see `LockClient.hold`."""
        await self._block.__aexit__(kind, error, traceback)


class AsyncHold(AsyncBlock[AsyncLock]):
    """`async with locks.hold("orders/7") as lock:` acquires, runs the body, releases."""


class AsyncHoldAll(AsyncBlock[tuple[AsyncLock, ...]]):
    """`async with locks.hold_all(["a", "b"]) as (a, b):` holds all of them in its body."""


class AsyncBlocks(BaseClient[AsyncCallback, AsyncHold, AsyncHoldAll]):
    """The part of `AsyncLockClient` that holds several locks at once, and elects a leader."""

    _services: AsyncLockServices
    _hold, _hold_all = AsyncHold, AsyncHoldAll

    @asynccontextmanager
    async def _block_of_all(
        self, plan: LocksInOrder[AsyncLock]
    ) -> AsyncIterator[tuple[AsyncLock, ...]]:
        async with AsyncExitStack() as stack:
            with plan.begun():
                for name in plan.in_order:
                    block = self._block(plan.options_of(name), reentrant=False)
                    plan.held[name] = await stack.enter_async_context(block)
            yield plan.all_held()

    async def lead(
        self,
        name: str,
        work: Callable[[AsyncLock, asyncio.Event], Awaitable[_T]],
        *,
        lease: Seconds | None = None,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        max_hold: Seconds | None = None,
    ) -> _T:
        """Awaits the work in one process of all that call this; in another when that one fails.

        Arguments, result and errors are those of `LockClient.lead`; the work is a coroutine
        function, and runs in the task of the caller. It is cancelled if it continues when the lock
        is lost. To end a leader, cancel its task.
        """
        check_work(self._settings, work, is_async=True)
        while True:
            term = Term(self._settings, AsyncLostEvent)
            options = term.options(name, lease, data, owner_name, max_hold)
            try:
                async with self._block(options, reentrant=False) as lock:
                    with term.working(lock):
                        async with cancelled_when_lost(lock.lost, lock.check):
                            result = await work(lock, term.stop)
                    if not term.was_told:
                        return result
            except (LockLost, LockWaitTimeout, LockStoreUnavailable) as error:
                if not term.goes_on_after(error):
                    raise
