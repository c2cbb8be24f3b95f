"""`AsyncLock`: one lock that this process holds, renewed by the event loop.

Beside it stand `AsyncHold`, which `AsyncLockClient.hold` returns, the account of which task is
inside of which locks, and `lead`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

from fairlock.aio.bridge import BridgedMutex, run
from fairlock.aio.tasks import AsyncHeartbeats, BackgroundTasks, is_another_running
from fairlock.client.arguments import LONGEST_WAIT_SECONDS, LockOptions
from fairlock.client.base_lock import BaseLock
from fairlock.client.connection import StoreFactory
from fairlock.client.entered_locks import Entered, EnteredLocks
from fairlock.client.leader import Term, check_work
from fairlock.client.local_lease import LONGEST_NAP_SECONDS
from fairlock.client.lock import BaseHold
from fairlock.client.reporting import LockEvents
from fairlock.client.settings import ClientSettings
from fairlock.clock import Seconds
from fairlock.errors import ClientUnusable, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.guarded.guarded_table import GuardedCall
from fairlock.protocol.model import AcquireRequest
from fairlock.protocol.outcomes import Grant

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncLockServices:
    """What all locks of one client use.

    Attributes:
        handle_store_factory: has connections of its own, so that no heartbeat waits behind tasks
            that acquire, however many they are.
    """

    settings: ClientSettings
    store_factory: StoreFactory
    handle_store_factory: StoreFactory
    heartbeats: AsyncHeartbeats
    tasks: BackgroundTasks
    events: LockEvents
    entered: EnteredLocks


class AsyncLostEvent(asyncio.Event):
    """Set when a lock is lost; checks the lease as `LostEvent` does, also after a blocked loop."""

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        """Whether the lock is lost."""
        return self._is_lost()

    async def wait(self) -> bool:  # type: ignore[override]  # the stubs say Literal[True]
        """Waits until the lock is lost."""
        while not self.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_NAP_SECONDS):
                    await super().wait()
        return True


class AsyncLock(BaseLock):
    """One lock that this process holds, until it is released or lost.

    Guaranteed and not guaranteed: as of `fairlock.Lock`. Besides, heartbeats need the event loop:
    code that blocks it for longer than the lease loses the lock. `check`, `lost.is_set()` and
    `remaining` read the clock, so they tell even then.

    Made by `AsyncLockClient`, for the event loop in which it was acquired.
    """

    def __init__(
        self,
        services: AsyncLockServices,
        request: AcquireRequest,
        options: LockOptions[AsyncCallback],
        granted: Grant,
    ) -> None:
        super().__init__(
            services.settings,
            services.store_factory,
            request,
            options,
            granted,
            events=services.events,
            entered=services.entered,
            handle_store_factory=services.handle_store_factory,
            mutex=BridgedMutex(),
        )
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._unfinished_writes: set[asyncio.Task[Any]] = set()
        self._lost = AsyncLostEvent(self._handle.lease.is_lost)
        self._guarded()  # Its AWS client exists now, and `condition_check` cannot wait for one.
        self._begin_heartbeats()

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lock is lost: the lease is over, or somebody else has the place.

        A release does not set it.
        """
        return self._lost

    async def heartbeat(
        self, *, lease: Seconds | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Renews the lease now, one request. The client does so by itself, so no call is needed.

        Arguments and errors as of `fairlock.Lock.heartbeat`.
        """
        self._require_own_loop()
        await self._services.tasks.shielded(run(self._renew, lease, data))

    async def release(self) -> bool:
        """Releases the lock, to the oldest waiter if there is one. One request if nobody waits.

        No heartbeat is under way any more when this returns, and none will be sent. May be
        repeated. If the task that releases is cancelled meanwhile, the release goes on all the
        same. Result and errors as of `fairlock.Lock.release`.
        """
        self._require_own_loop()
        if not self._handle.lease.is_from_parent_process:
            self._services.heartbeats.remove(self._handle)
        return await self._services.tasks.shielded(run(self._handle.release))

    async def transact_write(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        token: str | None = None,
        release: bool = False,
    ) -> None:
        """Commits the items if the lock is held at that moment: all, or nothing. One request.

        Arguments and errors as of `fairlock.Lock.transact_write`. If the task is cancelled
        meanwhile, the transaction goes on all the same, and its outcome is unknown: the same call
        again, with the same token, tells it.
        """
        self._require_own_loop()
        while self._unfinished_writes:  # A repeat must know the outcome of the call before it.
            await asyncio.wait(self._unfinished_writes)
        call = self._guarded().call(items, token=token, release=release)
        await self._services.tasks.shielded(
            run(self._write, call), unfinished=self._unfinished_writes
        )

    def _write(self, call: GuardedCall) -> None:
        try:
            super()._write(call)
        finally:
            if call.release and not self._handle.lease.is_held():
                self._services.heartbeats.remove(self._handle)

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
        return not self._loop.is_closed() and self._services.heartbeats.renews(self._handle)

    def _begin_heartbeats(self) -> None:
        self._services.heartbeats.add(self._handle)

    def _require_own_loop(self) -> None:
        if not self._handle.lease.is_from_parent_process and is_another_running(self._loop):
            message = f"lock {self.name!r} belongs to another event loop: use it there"
            raise ClientUnusable(message)

    def _report_loss(self, reason: str) -> None:
        self._call_in_loop(self._lost.set)
        super()._report_loss(reason)

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


class AsyncStopEvent(AsyncLostEvent):
    """Set when the work of a leader has to stop, and never cleared; see `StopEvent`."""

    def is_set(self) -> bool:
        """Whether the work has to stop."""
        if not asyncio.Event.is_set(self) and self._is_lost():
            self.set()
        return asyncio.Event.is_set(self)


@asynccontextmanager
async def _cancelled_when_lost(lock: AsyncLock) -> AsyncIterator[None]:
    """Cancels the block at the end of the lease: a task can be stopped, unlike a thread.

    Raises:
        LockLost: it was.
    """
    try:
        async with asyncio.timeout(None) as bound:
            watcher = asyncio.create_task(_expire_when_lost(lock, bound))
            try:
                yield
            finally:
                watcher.cancel()
    except TimeoutError:
        if bound.expired():
            lock.check()
        raise


async def _expire_when_lost(lock: AsyncLock, bound: asyncio.Timeout) -> None:
    await lock.lost.wait()
    bound.reschedule(asyncio.get_running_loop().time())


class AsyncLeading(ABC):
    """The part of `AsyncLockClient` that elects a leader."""

    _settings: ClientSettings

    async def lead(
        self,
        name: str,
        work: Callable[[AsyncLock, asyncio.Event], Awaitable[_T]],
        *,
        lease: Seconds | None = None,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
    ) -> _T:
        """Awaits the work in one process of all that call this; in another when that one fails.

        Arguments, result and errors as of `LockClient.lead`; the work is a coroutine function, and
        runs in the task of the caller. It is cancelled if it goes on when the lock is lost. To end
        a leader, cancel its task.
        """
        check_work(self._settings, work, is_async=True)
        while True:
            term = Term(self._settings, AsyncStopEvent)
            options: LockOptions[AsyncCallback] = LockOptions(
                *(name, lease, LONGEST_WAIT_SECONDS, 1, data, owner_name),
                *(term.on_lost, term.on_danger),
            )
            try:
                async with self._block(options, reentrant=False) as lock:
                    term.begin(lock)
                    try:
                        async with _cancelled_when_lost(lock):
                            result = await work(lock, term.stop)
                    finally:
                        term.end()
                    if not term.was_told:
                        return result
            except (LockLost, LockWaitTimeout, LockStoreUnavailable) as error:
                if not term.goes_on_after(error):
                    raise

    @abstractmethod
    def _block(
        self, options: LockOptions[AsyncCallback], *, reentrant: bool
    ) -> AbstractAsyncContextManager[AsyncLock]:
        """The block of `hold`."""
