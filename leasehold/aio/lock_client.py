"""`AsyncLockClient`: locks for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from leasehold.aio.acquisitions import CancellableAcquisitions
from leasehold.aio.bridge import run
from leasehold.aio.bridged import BridgedClock
from leasehold.aio.connection import AsyncConnection
from leasehold.aio.heartbeats import AsyncHeartbeats
from leasehold.aio.lock import AsyncCallback, AsyncLock
from leasehold.aio.tasks import BackgroundTasks
from leasehold.client import arguments
from leasehold.client.acquisition import Acquisition
from leasehold.client.event_log import log_event
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.lock_client import DEFAULT_LEASE_SECONDS, Takeover
from leasehold.client.logging import failsafe_logger
from leasehold.client.store_factory import StoreFactory
from leasehold.clock import Clock
from leasehold.store.events import Observe
from leasehold.store.lease_expiry import StoredExpiry, WatchedExpiry

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

_logger: Final = failsafe_logger()


class AsyncLockClient:
    """Locks in one table for one event loop, shared with workflows and all other clients.

    The same surface as `LockClient`, to be awaited. No threads: one task plans the heartbeats of
    all locks, and at most `max_workers` of them are under way at a time.

    A task that is cancelled while it acquires leaves the queue, or gives back what was granted in
    that moment, before the cancellation goes on; a request that was sent is never abandoned. So a
    cancellation may take as long as DynamoDB takes to answer. If the task is cancelled once more,
    the cleanup goes on in the background, and `close` waits for it.

    Args:
        table_name: name or ARN of the lock table.
        session: an aiobotocore session to make clients from; None takes the default one.
        client: an aiobotocore DynamoDB client to use as it is.
        stepfunctions: same, for Step Functions.
        owner_name: as of `LockClient`, and so are all others.
        lease: same.
        wait: same.
        heartbeat_every: same.
        safe_period: same.
        takeover: same.
        longest_poll: same.
        max_workers: most heartbeats under way at a time.
        best_effort_release: as of `LockClient`.
        observe: same.
        clock: the present, for tests; its `wait` runs on the bridge of this package.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    def __init__(
        self,
        table_name: str,
        *,
        session: AioSession | None = None,
        client: Any = None,  # noqa: ANN401 - aiobotocore makes its classes at run time
        stepfunctions: Any = None,  # noqa: ANN401 - same
        owner_name: str | None = None,
        lease: float = DEFAULT_LEASE_SECONDS,
        wait: float | None = None,
        heartbeat_every: float | None = None,
        safe_period: float | None = None,
        takeover: Takeover = "observed",
        longest_poll: float = 5.0,
        max_workers: int = 32,
        best_effort_release: bool = True,
        observe: Observe | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._timing = arguments.Timing(heartbeat_every=heartbeat_every, safe_period=safe_period)
        arguments.require_settings(
            owner_name=owner_name or "",
            lease=lease,
            wait=wait,
            timing=self._timing,
            takeover=takeover,
            longest_poll=longest_poll,
            max_workers=max_workers,
        )
        self._owner_name = owner_name
        self._lease = lease
        self._wait = wait
        self._longest_poll = longest_poll
        self._max_workers = max_workers
        self._best_effort_release = best_effort_release
        self._closed = False
        clock = clock or BridgedClock()
        # Two pools of connections: however many tasks acquire, no heartbeat waits behind them.
        self._for_held, self._for_acquiring = [
            AsyncConnection(
                session=session,
                dynamodb=client,
                stepfunctions=stepfunctions,
                most_at_once=max_workers,
            )
            for _ in range(2)
        ]
        self._store_factory = StoreFactory(
            connection=self._for_acquiring,
            table_name=table_name,
            clock=clock,
            lease_expiry=WatchedExpiry(clock) if takeover == "observed" else StoredExpiry(clock),
            observe=observe or log_event,
        )
        self._tasks = BackgroundTasks()
        self._acquisitions = CancellableAcquisitions(self._tasks)
        self._heartbeats = AsyncHeartbeats(clock, most_at_once=max_workers)

    async def acquire(
        self,
        name: str,
        *,
        lease: float | None = None,
        wait: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
    ) -> AsyncLock:
        """Takes the lock, or waits in its queue until it is handed over. Renewed until released.

        Arguments and errors as of `LockClient.acquire`; callbacks may be coroutine functions.
        """
        seconds = self.longest_wait(lease) if wait is None else wait
        arguments.require_wait(seconds)
        lock, waiting = await self._attempt(
            name,
            wait=seconds,
            lease=lease,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )
        if lock is None:
            raise waiting.timed_out()
        return lock

    async def try_acquire(
        self,
        name: str,
        *,
        lease: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
    ) -> AsyncLock | None:
        """Takes the lock if that is possible at once; None if others hold it. Does not queue.

        Of a holder that crashed: as `LockClient.try_acquire`.

        Raises:
            LockStoreUnavailable: outcome unknown; never reported as a grant, nor as None.
            InvalidRequest: an argument breaks its rule; nothing was written.
        """
        lock, waiting = await self._attempt(
            name,
            wait=0,
            lease=lease,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )
        if lock is None:
            waiting.log_takeover_hint()
        return lock

    def longest_wait(self, lease: float | None = None) -> float:
        """Seconds that `acquire` waits for a lock with such a lease, if it is not told how long."""
        return arguments.default_wait(self._wait, self._lease if lease is None else lease)

    @asynccontextmanager
    async def hold(
        self,
        name: str,
        *,
        lease: float | None = None,
        wait: float | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
    ) -> AsyncIterator[AsyncLock]:
        """`async with locks.hold("orders/7") as lock:` acquires, runs the body, releases.

        Released also if the body is cancelled. Else as `LockClient.hold`; arguments and errors as
        of `acquire`.
        """
        lock = await self.acquire(
            name,
            lease=lease,
            wait=wait,
            limit=limit,
            data=data,
            owner_name=owner_name,
            on_lost=on_lost,
            on_danger=on_danger,
        )
        async with lock:
            yield lock

    async def close(self, *, release: bool = False) -> None:
        """Ends heartbeats and tasks, and closes the connections that this client made.

        Acquisitions that are under way leave the queue, and raise RuntimeError. A lock that is
        released later than that opens a connection once more, which nobody closes.

        Args:
            release: whether to give back all locks that are held, as well as that is possible.
                Else they are held until their leases are over.
        """
        self._closed = True
        self._acquisitions.end()
        held = self._heartbeats.locks()
        await self._heartbeats.close()
        if release and held:
            some_at_once = asyncio.Semaphore(self._max_workers)
            await asyncio.gather(*(self._release_at_close(one, some_at_once) for one in held))
        await self._tasks.finish()
        await self._disconnect()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes, and gives back all locks that are held."""
        await self.close(release=True)

    async def _attempt(
        self,
        name: str,
        *,
        wait: float,
        lease: float | None,
        limit: int,
        data: Mapping[str, Any] | None,
        owner_name: str | None,
        on_lost: AsyncCallback | None,
        on_danger: AsyncCallback | None,
    ) -> tuple[AsyncLock | None, Acquisition]:
        self._require_open()
        seconds = self._lease if lease is None else lease
        request = arguments.acquire_request(
            name=name,
            lease=seconds,
            limit=limit,
            data=data,
            owner_name=owner_name or self._owner_name or arguments.default_owner_name(),
            waits=wait > 0,
        )
        self._timing.require_room(seconds)
        arguments.require_callable("on_lost", on_lost)
        arguments.require_callable("on_danger", on_danger)
        waiting = Acquisition(
            self._store_factory,
            request,
            wait=wait,
            longest_poll=self._longest_poll,
            require_open=self._require_open,
        )
        granted = await self._acquisitions.take(waiting)
        if granted is None:
            return None, waiting
        try:
            self._require_open()  # It may have been closed in this moment, and nobody would renew.
            lock = AsyncLock(
                self._store_factory,
                request,
                granted,
                while_held=replace(self._store_factory, connection=self._for_held),
                data=data,
                timing=self._timing,
                heartbeats=self._heartbeats,
                tasks=self._tasks,
                on_lost=on_lost,
                on_danger=on_danger,
                best_effort_release=self._best_effort_release,
            )
        except BaseException:
            await self._tasks.shielded(self._undo(waiting))
            raise
        return lock, waiting

    async def _undo(self, waiting: Acquisition) -> None:
        """Gives back what was granted to nobody."""
        try:
            await run(waiting.leave)
        except Exception:
            _logger.exception("what was granted in vain is not released; the lease ends it")
        if self._closed:
            await self._disconnect()

    async def _release_at_close(self, held: LeaseHandle, some_at_once: asyncio.Semaphore) -> None:
        async with some_at_once:
            try:
                await run(held.release)
            except Exception:
                _logger.exception("release at close failed; the lease ends it")

    async def _disconnect(self) -> None:
        for connection in (self._for_held, self._for_acquiring):
            await connection.aclose()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("this AsyncLockClient is closed")
