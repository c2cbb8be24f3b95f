"""`AsyncLockClient`: locks for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from fairlock.aio.async_lock import (
    AsyncBlocks,
    AsyncCallback,
    AsyncLock,
    AsyncLockServices,
)
from fairlock.aio.bridge import (
    AsyncConnection,
    BridgedClock,
    iterate,
    run,
    with_awaited_calls,
)
from fairlock.aio.tasks import (
    AsyncEnteredLocks,
    AsyncHeartbeats,
    BackgroundTasks,
    cancel_once,
    is_another_running,
    undo,
)
from fairlock.client import arguments
from fairlock.client.acquisition import Acquisition
from fairlock.client.arguments import ClientOptions, ClientSettings, LockOptions
from fairlock.client.connection import told_by_stack
from fairlock.client.heartbeats import Releasable
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.reporting import LockEvents, OnEvent, logger
from fairlock.client.table_client import OpenedTable
from fairlock.clock import AwsClock, Clock, Seconds
from fairlock.errors import ClientUnusable, DescribedHolder, LockWaitTimeout
from fairlock.names import TABLE_NAME_PARAMETER
from fairlock.protocol.description import LockDescription
from fairlock.protocol.model import Grant

if TYPE_CHECKING:
    from aiobotocore.session import AioSession


_CLOSED: Final = "this AsyncLockClient is closed: make another one"
_CLOSED_ELSEWHERE: Final = (
    "this AsyncLockClient was used in another event loop: close it there; if that loop has ended, "
    "its locks are not renewed, and their leases end them"
)


@with_awaited_calls
@arguments.with_explained_calls
class AsyncLockClient(AsyncBlocks):
    """Locks in one table for one event loop, shared with workflows and all other clients.

    The same surface as `LockClient`, to be awaited, with tasks for threads: a task that the body of
    a block starts is another one, and waits. One task schedules the heartbeats of all locks, and at
    most `max_workers` of them are under way at a time. A cancelled body releases its lock, too.

    A task that is cancelled while it acquires leaves the queue, or releases what was granted in
    that moment, before the cancellation goes on; a request that was sent is never abandoned. So a
    cancellation may take as long as DynamoDB takes to answer. If the task is cancelled once more,
    the cleanup goes on in the background, and `close` waits for it.

    Args:
        table_name: name or ARN of the lock table; None takes it from FAIRLOCK_TABLE_NAME.
        session: an aiobotocore session to make clients from; None takes the default one.
        client: an aiobotocore DynamoDB client to use as it is.
        stepfunctions: same, for Step Functions.
        on_event: as of `LockClient`; a plain function, called in a thread: no request and no task
            waits for it.
        clock: as of `LockClient`; the `wait` of one for tests must let the event loop run, see
            `fairlock.testing`.

    All other arguments are those of `LockClient`.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    def __init__(
        self,
        table_name: str | None = None,
        *,
        session: AioSession | None = None,
        client: Any = None,  # noqa: ANN401 - aiobotocore makes its classes at run time
        stepfunctions: Any = None,  # noqa: ANN401 - same
        clock: Clock | Literal["system"] | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self._settings = ClientSettings(
            table_name, clock=clock, machine_clock=BridgedClock, **settings
        )
        self._settings.timing.warn_of_other_meaning(self._settings.lease)
        max_workers, on_event = self._settings.max_workers, self._settings.on_event
        self._connections = [
            AsyncConnection(
                session=session,
                dynamodb=client,
                stepfunctions=stepfunctions,
                most_at_once=max_workers,
            )
            for _ in range(2)
        ]
        clock = self._settings.clock
        self._services = AsyncLockServices(
            settings=self._settings,
            connection=self._connections[0],
            handle_connection=self._connections[1],
            aws_clock=AwsClock(clock, uses_dates=self._settings.uses_dates),
            local_waiters=LocalWaiters(clock),
            heartbeats=AsyncHeartbeats(clock, most_at_once=max_workers),
            tasks=BackgroundTasks(),
            events=self._new_events(on_event),
            entered=AsyncEnteredLocks(),
            of_asyncio=True,
        )
        self._under_way: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @classmethod
    async def from_stack(
        cls,
        stack_name: str,
        *,
        session: AioSession | None = None,
        **settings: Unpack[ClientOptions],
    ) -> Self:
        """Makes a client for the table of a shared service. As `LockClient.from_stack`."""
        ClientSettings("unread", machine_clock=BridgedClock, **settings)
        connection = AsyncConnection(session=session)
        make_client = partial(connection.client, "ssm")
        try:
            table = await run(told_by_stack, stack_name, TABLE_NAME_PARAMETER, make_client)
        finally:
            await connection.aclose()
        return cls(table, session=session, **settings)

    async def acquire(
        self,
        name: str,
        *,
        lease: Seconds | None = None,
        max_wait: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
        shared: bool = False,
        max_hold: Seconds | None = None,
        only_newest: bool | int = False,
    ) -> AsyncLock:
        """Acquires the lock, or waits for it in the queue; then renews it until you release it.

        Arguments and errors are those of `LockClient.acquire`; callbacks may be coroutine
        functions.
        """
        options = LockOptions(
            *(name, lease, max_wait, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold, only_newest),
        )
        return await self._acquire(options)

    async def try_acquire(
        self,
        name: str,
        *,
        lease: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
        shared: bool = False,
        max_hold: Seconds | None = None,
    ) -> AsyncLock | None:
        """Acquires the lock if that is possible at once; else None. As `LockClient.try_acquire`."""
        options = LockOptions(
            *(name, lease, 0, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold),
        )
        try:
            return await self._acquire(options)
        except LockWaitTimeout:
            return None

    @asynccontextmanager
    async def _block(
        self, options: LockOptions[AsyncCallback], *, reentrant: bool
    ) -> AsyncIterator[AsyncLock]:
        outer = self._services.entered.reentered(options) if reentrant else None
        if isinstance(outer, AsyncLock):
            yield outer
            if outer.lost.is_set():  # The outer block notes it on what the body raises.
                outer.check()
            return
        async with await self._acquire(options) as lock:
            yield lock

    async def adopt(
        self,
        name: str,
        owner_id: str,
        *,
        lease: Seconds | None = None,
        on_lost: AsyncCallback | None = None,
        on_danger: AsyncCallback | None = None,
    ) -> AsyncLock:
        """Takes charge of a lock that a function, a workflow or another process has acquired.

        Arguments and errors are those of `LockClient.adopt`; callbacks may be coroutine functions.
        """
        wanted = LockOptions(*(name, lease, 0, 1, None, None, on_lost, on_danger))
        self._require_open()
        adopted = await run(self._services.adopt, owner_id, wanted)
        self._require_open()
        return AsyncLock(self._services, *adopted)

    async def describe(self, name: str) -> LockDescription | None:
        """Tells who holds a lock and who waits for it. As `LockClient.describe`."""
        return await run(self._table().describe, name)

    def list(self, prefix: str | None = None) -> AsyncIterator[LockDescription]:
        """Iterates over the locks that the table knows. As `LockClient.list`, costs included."""
        return iterate(self._table().list(prefix))

    async def force_release(
        self,
        name: str,
        *,
        holder: DescribedHolder | None = None,
        fencing_token: int | None = None,
        reason: str,
        requested_by: str | None = None,
    ) -> None:
        """Takes a lock away from a holder. As `LockClient.force_release`."""
        by: Any = {"holder": holder, "fencing_token": fencing_token, "requested_by": requested_by}
        await run(self._table().force_release, name, reason=reason, **by)

    async def set_limit(
        self, name: str, limit: int, *, reason: str, requested_by: str | None = None
    ) -> None:
        """Lets no more than this number hold a lock. As `LockClient.set_limit`."""
        by = requested_by
        await run(self._table().set_limit, name, limit, reason=reason, requested_by=by)

    async def pause(self, name: str, *, reason: str, requested_by: str | None = None) -> None:
        """Keeps all callers from a lock until `resume`. As `LockClient.pause`."""
        await run(self._table().pause, name, reason=reason, requested_by=requested_by)

    async def resume(
        self, name: str, *, reason: str = "resumed", requested_by: str | None = None
    ) -> None:
        """Lifts what `pause` or `set_limit` has set. As `LockClient.resume`."""
        await run(self._table().resume, name, reason=reason, requested_by=requested_by)

    async def empty_queue(self, name: str) -> int:
        """Removes all waiters of a lock; the holders stay. As `LockClient.empty_queue`."""
        return await run(self._table().empty_queue, name)

    async def release(self, name: str, owner_id: str) -> bool:
        """Releases what a function or another process has acquired. As `LockClient.release`."""
        return await run(self._table().release, name, owner_id)

    async def pace(
        self,
        name: str,
        *,
        rate: tuple[int, Seconds],
        max_wait: Seconds | None = None,
        burst: int = 1,
    ) -> None:
        """Waits for the next slot of a pace, and returns when it begins. As `LockClient.pace`."""
        await run(self._table().pace, name, rate=rate, max_wait=max_wait, burst=burst)

    def _table(self) -> OpenedTable:
        return OpenedTable(self._settings, self._opened())

    async def close(self, *, release: bool = False) -> None:
        """Ends heartbeats and tasks, and closes the connections that this client made.

        Acquisitions that are under way leave the queue, and raise `ClientUnusable`. A lock that is
        released after that opens a connection once more, which nothing closes. If the task that
        closes is cancelled meanwhile, the releases continue; a second `close` waits for them, and
        closes the connections.

        Args:
            release: whether to release all locks that are held; failures are logged. Otherwise they
                are held until their leases end.

        Raises:
            ClientUnusable: in another event loop than that of the locks, if `release` is asked for
                or that loop still runs; nothing is closed.
        """
        arguments.require_bool("release", release)
        loop = self._loop
        if loop is not None and is_another_running(loop) and (release or loop.is_running()):
            raise ClientUnusable(_CLOSED_ELSEWHERE)
        self._closed = True
        for task in self._under_way:  # Their callers get an error.
            cancel_once(task)
        services = self._services
        held = [*services.heartbeats.handles(), *services.unreleased.unsettled()]
        handles = list(dict.fromkeys(held)) if release else []
        await self._services.tasks.shielded(self._end_heartbeats(handles))
        await self._services.tasks.finish()
        if self._services.events.has_thread:
            await asyncio.to_thread(self._services.events.close)
        await self._disconnect()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(
        self, _kind: object, error: BaseException | None, _traceback: object
    ) -> None:
        """Closes, and releases all locks that are held."""
        try:
            await self.close(release=True)
        except ClientUnusable as unusable:
            if error is None:
                raise
            error.add_note(f"At the end of the client: {unusable}")

    async def _acquire(self, options: LockOptions[AsyncCallback]) -> AsyncLock:
        self._require_open()
        acquisition = self._services.acquisition(options, self._require_open)
        granted = await self._run(acquisition)
        if granted is None:
            raise acquisition.timed_out()
        try:
            self._require_open()  # Closed in this moment: nothing would renew the lock.
            lock = AsyncLock(self._services, acquisition.request, options, granted)
        except BaseException:
            await self._services.tasks.shielded(self._undo(acquisition))
            raise
        acquisition.report_grant(granted)
        return lock

    async def _run(self, acquisition: Acquisition) -> Grant | None:
        """Runs an acquisition in a task of its own; undoes it if the caller is cancelled.

        Cancelled once, it leaves the queue by itself before it ends; what was granted in that
        moment is released. Raises `ClientUnusable` if the client was closed meanwhile.
        """
        tasks = self._services.tasks
        task = tasks.start(run(acquisition.run))
        self._under_way.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            cancel_once(task)
            await tasks.shielded(undo(task, acquisition))
            caller = asyncio.current_task()
            if self._closed and caller is not None and not caller.cancelling():
                raise ClientUnusable(_CLOSED) from None
            raise
        finally:
            self._under_way.discard(task)

    async def _undo(self, acquisition: Acquisition) -> None:
        """Releases what was granted when the client was closed."""
        try:
            await run(acquisition.leave)
        except Exception:
            name = acquisition.request.lock_name
            logger.exception("lock %r: granted in vain, not released; the lease ends it", name)
        if self._closed:
            await self._disconnect()

    async def _end_heartbeats(self, to_release: Sequence[Releasable]) -> None:
        await self._services.heartbeats.close()
        semaphore = asyncio.Semaphore(self._settings.max_workers)

        async def release(handle: Releasable) -> None:
            async with semaphore:
                await run(handle.release_at_close)

        await asyncio.gather(*map(release, to_release))

    async def _disconnect(self) -> None:
        for connection in reversed(self._connections):
            await connection.aclose()

    @staticmethod
    def _new_events(on_event: OnEvent | None) -> LockEvents:
        return LockEvents(on_event)

    def _require_open(self) -> None:
        if self._closed:
            raise ClientUnusable(_CLOSED)
        with suppress(RuntimeError):  # `list` may be called before there is a loop.
            self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not None and is_another_running(self._loop):
            message = "this AsyncLockClient was used in another event loop: make one in each"
            raise ClientUnusable(message)
