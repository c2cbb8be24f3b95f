"""`Lock`: one lock that this process holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from leasehold.client.acquisition import TimedGrant
from leasehold.client.arguments import Timing
from leasehold.client.base_lock import BaseLock
from leasehold.client.callbacks import Callbacks
from leasehold.client.heartbeats import Heartbeats
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.local_lease import LeaseState
from leasehold.client.logging import failsafe_logger
from leasehold.client.store_factory import StoreFactory
from leasehold.client.unreleased import UnreleasedHandles
from leasehold.client.with_block import raise_or_note
from leasehold.protocol.model import AcquireRequest

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_logger: Final = failsafe_logger()


class Lock(BaseLock):
    """One lock that this process holds, until it is released or lost.

    Guaranteed: as long as `check` does not raise, no other client has been granted this permit
    by the rules of the protocol: the lease is measured from the moment at which its last successful
    renewal was **sent**, by a clock that also runs while the machine sleeps.

    Not guaranteed: that the answer of `check` still holds a moment later. No lease can promise that
    a process which stalls between the check and its next step notices in time. Pass
    `fencing_token` on, or write through `transact_write`, where it matters.

    Made by `LockClient`. May be used by several threads. In a forked child it is inert: lost, and
    without effect on the lock of the parent.
    """

    def __init__(
        self,
        stores: StoreFactory,
        request: AcquireRequest,
        granted: TimedGrant,
        *,
        data: Mapping[str, Any] | None,
        timing: Timing,
        heartbeats: Heartbeats,
        unreleased: UnreleasedHandles,
        reports: Callbacks,
        on_lost: Callback | None,
        on_danger: Callback | None,
        best_effort_release: bool,
    ) -> None:
        super().__init__(stores, request, granted, data=data, timing=timing)
        self._heartbeats = heartbeats
        self._unreleased = unreleased
        self._callbacks = reports
        self._on_lost = on_lost
        self._on_danger = on_danger
        self._best_effort_release = best_effort_release
        self._held = LeaseHandle(
            stores, granted, timing=timing, on_lost=self._report_loss, on_danger=self._report_danger
        )
        try:
            heartbeats.keep(self._held)
        except BaseException:
            heartbeats.drop(self._held)
            raise

    @property
    def lost(self) -> threading.Event:
        """Set once the lock is lost: the lease is over, or somebody else has the place.

        A release does not set it.
        """
        return self._held.lost

    def heartbeat(
        self, *, lease: float | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Renews the lease now, one request. The client does so by itself; nobody has to.

        Args:
            lease: seconds; from now on the lease of this lock. None keeps it.
            data: replaces what is stored with the lock. None keeps it.

        Raises:
            LockLost: too late; nothing was renewed.
            LockStoreUnavailable: outcome unknown. The lock is held as long as `check` says so.
            InvalidRequest: an argument breaks its rule.
        """
        lease_ms, text = self._as_stored(lease, data)
        try:
            self._held.beat(lease_ms=lease_ms, data=text)
        finally:
            if lease is not None and self._held.is_held():
                self._heartbeats.keep(self._held)
        if data is not None:
            self._data = data

    def release(self) -> bool:
        """Gives the lock back, to the oldest waiter if there is one. One request if nobody waits.

        No heartbeat is under way any more when this returns, and none will be sent. May be
        repeated. If it is interrupted (by a KeyboardInterrupt, say), the release is tried once more
        before the interrupt goes on, and once more by the end of `with LockClient(…)`.

        Returns:
            Whether it was given back by its holder; False if it had been lost before. (If its lease
            was over and nobody had taken it, it is free now; else nothing was changed.)

        Raises:
            LockStoreUnavailable: outcome unknown. Heartbeats have ended, so the lock is free when
                its lease is over at the latest; or repeat the call. Raised at once in a signal
                handler that has come in the middle of a request of this lock.
        """
        self._renew_no_more()
        try:
            return self._held.release()
        finally:
            self._unreleased.settle(self._held)

    def transact_write(
        self, items: Sequence[TransactWriteItemTypeDef], *, release: bool = False
    ) -> None:
        """Commits the items if the lock is held at that moment: all, or nothing. One request.

        Args:
            items: as for boto3's `transact_write_items`, with low-level attribute values; at most
                99, with `release` 98. Any tables, but not the items of this lock.
            release: whether the lock is given back in the same transaction, to the oldest waiter if
                there is one (two requests more).

        Raises:
            LockLost: the lock is gone; nothing was written.
            TransactionRefused: a condition of the items failed; nothing was written, and the lock
                is held as before.
            InvalidRequest: the items break a rule; nothing was written.
            LockStoreUnavailable: outcome unknown. Repeat the very same call on this lock; so too
                after anything else that interrupted it, of a signal handler for instance. With
                `release` there are no more heartbeats from then on, whatever the repeat says.
        """
        guarded = self._guarded()
        call = guarded.begin(items, release=release, caller=threading.get_ident())
        try:
            self._write(call)
        except BaseException:
            guarded.abandon(call)
            raise
        finally:
            if release and not self._held.is_held():
                self._renew_no_more()
                self._unreleased.settle(self._held)
        guarded.forget(call)

    def __enter__(self) -> Self:
        """The lock itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases, as `LockClient.hold` does."""
        if self._held.is_from_parent_process:
            return
        raise_or_note(self._release_error(), error, best_effort_release=self._best_effort_release)

    def _renew_no_more(self) -> None:
        if (
            not self._held.is_from_parent_process
        ):  # In a forked child the parent's threads may hold its locks.
            self._unreleased.add(self._held)
            self._heartbeats.drop(self._held)

    def _release_error(self) -> Exception | None:
        """Releases; returns what was wrong with the lock, or with its release."""
        try:
            if not self.release():
                self.check()
        except Exception as error:
            if self._held.standing() is LeaseState.RELEASED:
                raise  # Nothing is wrong: a signal handler raised it, and wants it to leave.
            return error
        return None

    def _report_loss(self, why: str) -> None:
        _logger.warning("lock %r is lost: %s", self.name, why)
        self._report("on_lost", self._on_lost)

    def _report_danger(self) -> None:
        _logger.warning("lock %r is in danger: %.1f s left", self.name, self.remaining)
        self._report("on_danger", self._on_danger)

    def _report(self, what: str, callback: Callback | None) -> None:
        if callback is not None:
            self._callbacks.tell(f"{what} of lock {self.name!r}", lambda: callback(self))


Callback = Callable[[Lock], None]
"""Is told of a lock, in a thread of the client's; what it raises is logged."""
