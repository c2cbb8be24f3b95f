"""A lock that is held: its renewals, its release, and writes that depend on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

from leasehold.client.acquisition import TimedGrant
from leasehold.client.arguments import Timing
from leasehold.client.interrupts import is_inside
from leasehold.client.local_lease import LeaseState, LocalLease
from leasehold.client.store_factory import StoreFactory
from leasehold.dynamodb.retry import retry
from leasehold.errors import LockLost, LockStoreUnavailable
from leasehold.guarded.pending_calls import PendingCall
from leasehold.protocol.model import HeartbeatRequest, Released, ReleaseRequest, Renewal

_RELEASE_SECONDS: Final = 5.0
_INTERRUPTED: Final = (
    "not released: a signal handler asks for it in the middle of a request of this lock, and would "
    "wait for itself; the lease ends it"
)


class LeaseHandle(LocalLease):
    """One grant, and its requests.

    Args:
        stores: the lock table.
        granted: the grant, and since when it counts.
        timing: when it is to be renewed, and when it is in danger.
        on_lost: is told why, once, in whatever thread finds out: must be quick.
        on_danger: same, each time that the lock comes into danger.
        mutex: entered around each request, so that there is one at a time: no heartbeat is
            under way when a release is. None takes a lock for threads.
    """

    def __init__(
        self,
        stores: StoreFactory,
        granted: TimedGrant,
        *,
        timing: Timing,
        on_lost: Callable[[str], None],
        on_danger: Callable[[], None],
        mutex: AbstractContextManager[object] | None = None,
    ) -> None:
        super().__init__(stores.clock, granted, timing=timing, on_lost=on_lost, on_danger=on_danger)
        self._store_factory = stores
        self._owner_id = granted.grant.owner_id
        self._mutex = mutex or threading.RLock()
        self._may_be_released = False

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal handler asks that came in the middle of a request of this lock."""
        return is_inside(self._mutex)

    def beat(self, *, lease_ms: int | None = None, data: str | None = None) -> None:
        """Renews the lease, one request.

        Raises:
            LockLost: too late.
            LockStoreUnavailable: outcome unknown.
        """
        if self.is_from_parent_process:
            self.require()
        with self._mutex:
            self.require()
            sent = self._clock.monotonic()
            if lease_ms is not None:
                # It may be written although we never hear of it, and be shorter.
                self.shorten(sent + lease_ms / 1000)
            answer = self._store_factory.store(deadline=self.ends_at).heartbeat(
                HeartbeatRequest(
                    lock_name=self._lock_name,
                    owner_id=self._owner_id,
                    lease_ms=lease_ms,
                    data=data,
                )
            )
            if isinstance(answer, Renewal):
                self.renewed(sent, answer.lease_ms / 1000)
            else:
                self.lose("somebody else has its place", taken=True)
            self.require()

    def release(self) -> bool:
        """Ends renewals, then gives the lock back; returns whether it was ours until then.

        A lock whose lease is over is given back too, should nobody have noticed: so it is free
        earlier.

        Raises:
            LockStoreUnavailable: outcome unknown, whatever was tried.
        """
        if self.is_from_parent_process:
            return False
        was_lost = self.is_lost()
        self.change(LeaseState.HELD, LeaseState.RELEASING)
        if self.is_interrupted:
            raise LockStoreUnavailable(_INTERRUPTED)
        try:
            return self._release_once(was_lost=was_lost, seconds=_RELEASE_SECONDS)
        except LockStoreUnavailable:
            raise
        except BaseException:
            # Interrupted, at any moment: what was sent may have been written, or nothing sent yet.
            self._may_be_released = True
            with suppress(Exception):
                self._release_once(was_lost=was_lost, seconds=0)
            raise

    def write(self, call: PendingCall, send: Callable[[PendingCall], None]) -> None:
        """Sends a write that DynamoDB allows only to the holder, and learns from its outcome.

        Raises:
            LockLost: the lock is lost already, or DynamoDB says so. Not the former if the call
                repeats another: that may have happened, so a loss since is no answer.
        """
        if not call.repeats:
            self.require()
        try:
            send(call)
        except LockLost:
            self.lose("DynamoDB refused a guarded write", taken=True, unless_releasing=True)
            raise

    def write_and_release(self, call: PendingCall, send: Callable[[PendingCall], None]) -> None:
        """Sends such a write that gives the lock back too.

        Raises:
            LockLost: the lock is lost already, or DynamoDB says so.
        """
        if self.is_from_parent_process:
            self.require()
        with self._mutex:
            if not call.repeats and self.standing() is not LeaseState.RELEASING:
                self.require()
            try:
                send(call)
                self.change(LeaseState.HELD, LeaseState.RELEASED)
                self.change(LeaseState.RELEASING, LeaseState.RELEASED)
            except LockLost:
                if not self._may_be_released:
                    self.lose("DynamoDB refused a guarded write", taken=True)
                raise
            except BaseException:
                if call.may_have_happened:
                    self._may_be_released = True
                    self.change(LeaseState.HELD, LeaseState.RELEASING)
                raise

    def _release_once(self, *, was_lost: bool, seconds: float) -> bool:
        with self._mutex:
            if self.standing() is LeaseState.RELEASED:
                return True
            if self.taken:
                return False
            if self._release(seconds):
                self.change(LeaseState.RELEASING, LeaseState.RELEASED)
                return not was_lost
        self.lose("somebody else had its place when it was released", taken=True)
        return False

    def _release(self, seconds: float) -> bool:
        """Sends the release until there is an answer; returns whether nobody had the place."""
        request = ReleaseRequest(lock_name=self._lock_name, owner_id=self._owner_id)
        store = self._store_factory.store(deadline=self._clock.monotonic() + seconds)
        answer = retry(
            lambda: store.release(request),
            self._store_factory.retry_budget(seconds=seconds),
            repeat_after=self._may_have_released,
        )
        # After an attempt of unknown outcome "not held" may well be its doing.
        return isinstance(answer, Released) or self._may_be_released

    def _may_have_released(self, error: Exception) -> bool:
        is_unknown = isinstance(error, LockStoreUnavailable)
        self._may_be_released |= is_unknown
        return is_unknown
