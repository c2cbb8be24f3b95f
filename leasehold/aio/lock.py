"""`AsyncLock`: one lock that this process holds, renewed by the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from leasehold.aio.bridge import run
from leasehold.aio.bridged import BridgedMutex
from leasehold.aio.heartbeats import AsyncHeartbeats
from leasehold.aio.lost_event import LostEvent
from leasehold.aio.tasks import BackgroundTasks
from leasehold.client.acquisition import TimedGrant
from leasehold.client.arguments import Timing
from leasehold.client.base_lock import BaseLock
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.logging import failsafe_logger
from leasehold.client.store_factory import StoreFactory
from leasehold.client.with_block import raise_or_note
from leasehold.guarded.pending_calls import PendingCall
from leasehold.protocol.model import AcquireRequest

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_logger: Final = failsafe_logger()


class AsyncLock(BaseLock):
    """One lock that this process holds, until it is released or lost.

    Guaranteed and not guaranteed: what `leasehold.Lock` says. Besides, heartbeats need the event
    loop: code that blocks it for longer than the lease loses the lock. `check`, `lost.is_set()` and
    `remaining` ask the clock, so they know even then.

    Made by `AsyncLockClient`, for the event loop in which it was acquired.
    """

    def __init__(
        self,
        stores: StoreFactory,
        request: AcquireRequest,
        granted: TimedGrant,
        *,
        while_held: StoreFactory,
        data: Mapping[str, Any] | None,
        timing: Timing,
        heartbeats: AsyncHeartbeats,
        tasks: BackgroundTasks,
        on_lost: AsyncCallback | None,
        on_danger: AsyncCallback | None,
        best_effort_release: bool,
    ) -> None:
        super().__init__(stores, request, granted, data=data, timing=timing)
        self._heartbeats = heartbeats
        self._tasks = tasks
        self._on_lost = on_lost
        self._on_danger = on_danger
        self._best_effort_release = best_effort_release
        self._loop = asyncio.get_running_loop()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._held = LeaseHandle(
            while_held,
            granted,
            timing=timing,
            on_lost=self._report_loss,
            on_danger=self._report_danger,
            mutex=BridgedMutex(),
        )
        self._lost = LostEvent(self._held.is_lost)
        self._guarded()  # While its client is there: `condition_check` cannot wait for one.
        heartbeats.keep(self._held)

    @property
    def lost(self) -> asyncio.Event:
        """Set once the lock is lost: the lease is over, or somebody else has the place.

        A release does not set it.
        """
        return self._lost

    async def heartbeat(
        self, *, lease: float | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Renews the lease now, one request. The client does so by itself; nobody has to.

        Arguments and errors as of `leasehold.Lock.heartbeat`.
        """
        lease_ms, text = self._as_stored(lease, data)
        try:
            await self._tasks.shielded(run(self._held.beat, lease_ms=lease_ms, data=text))
        finally:
            if lease is not None and self._held.is_held():
                self._heartbeats.keep(self._held)
        if data is not None:
            self._data = data

    async def release(self) -> bool:
        """Gives the lock back, to the oldest waiter if there is one. One request if nobody waits.

        No heartbeat is under way any more when this returns, and none will be sent. May be
        repeated. If the task that releases is cancelled meanwhile, the release goes on all the
        same.

        Returns:
            Whether it was given back; False if it had been lost before (nothing was changed then).

        Raises:
            LockStoreUnavailable: outcome unknown. Heartbeats have ended, so the lock is free when
                its lease is over at the latest; or repeat the call.
        """
        if not self._held.is_from_parent_process:
            self._heartbeats.drop(self._held)
        return await self._tasks.shielded(run(self._held.release))

    async def transact_write(
        self, items: Sequence[TransactWriteItemTypeDef], *, release: bool = False
    ) -> None:
        """Commits the items if the lock is held at that moment: all, or nothing. One request.

        Arguments and errors as of `leasehold.Lock.transact_write`. If the task is cancelled
        meanwhile, the transaction goes on all the same, and its outcome is unknown: the same call
        again tells it.
        """
        while self._unfinished:  # A repeat must know what became of its forerunner.
            await asyncio.wait(self._unfinished)
        guarded = self._guarded()
        call = guarded.begin(items, release=release, caller=asyncio.current_task())
        try:
            await self._tasks.shielded(run(self._write, call), unfinished=self._unfinished)
        except asyncio.CancelledError:
            guarded.abandon(call, is_over=False)
            raise
        except BaseException:
            guarded.abandon(call)
            raise
        guarded.forget(call)

    def _write(self, call: PendingCall) -> None:
        try:
            super()._write(call)
        finally:
            if call.release and not self._held.is_held():
                self._heartbeats.drop(self._held)

    async def __aenter__(self) -> Self:
        """The lock itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases, as `AsyncLockClient.hold` does."""
        if not self._held.is_from_parent_process:
            lock_error = await self._release_error()
            raise_or_note(lock_error, error, best_effort_release=self._best_effort_release)

    async def _release_error(self) -> Exception | None:
        """Releases; returns what was wrong with the lock, or with its release."""
        try:
            if not await self.release():
                self.check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller raises it or logs it
            return error
        return None

    def _report_loss(self, why: str) -> None:
        _logger.warning("lock %r is lost: %s", self.name, why)
        self._soon(self._lost.set)
        self._report("on_lost", self._on_lost)

    def _report_danger(self) -> None:
        _logger.warning("lock %r is in danger: %.1f s left", self.name, self.remaining)
        self._report("on_danger", self._on_danger)

    def _report(self, what: str, callback: AsyncCallback | None) -> None:
        if callback is not None:
            what = f"{what} of lock {self.name!r}"
            self._soon(lambda: self._tasks.tell(what, lambda: callback(self)))

    def _soon(self, action: Callable[[], None]) -> None:
        """In the event loop: who finds out may be in another thread, or after its end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)


AsyncCallback = Callable[[AsyncLock], Awaitable[object] | None]
"""Is told of a lock, in the event loop; a coroutine is awaited. What it raises is logged."""
