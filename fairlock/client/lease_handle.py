"""The requests of one grant: heartbeats, release, and writes that depend on it; one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Final

from fairlock.client.connection import RELEASE_SECONDS, TableAccess
from fairlock.client.local_lease import LeaseState, LocalLease
from fairlock.client.reporting import logger
from fairlock.client.threads import is_held_by_this_thread
from fairlock.clock import longest_own_ms
from fairlock.errors import LockLost, LockStoreUnavailable
from fairlock.guarded.guarded_table import GuardedCall
from fairlock.protocol.model import HeartbeatRequest, ReleaseRequest
from fairlock.protocol.outcomes import Released
from fairlock.store.keep_alive import renew_lease
from fairlock.store.release import release

_TAKEN: Final = "another owner has it, or it was freed by force"
_REFUSED: Final = "DynamoDB refused a guarded write"
_GRANTED_AGAIN: Final = "its owner_id has a grant with another fencing token"


class LeaseHandle:
    """Renews and releases one grant, and keeps the account of its lease.

    The mutex is entered around each request, so that no heartbeat is under way during a release.
    What `dropped` says the next heartbeat logs: the garbage collector may come while a log's mutex
    is taken.
    """

    def __init__(
        self,
        access: TableAccess,
        lease: LocalLease,
        *,
        mutex: AbstractContextManager[object] | None = None,
    ) -> None:
        self.lease = lease
        self._queue = access.local_waiters.add_holder(lease)
        self._access = access
        self._mutex = mutex or threading.RLock()
        self._may_be_released = False
        self._release_has_begun = False
        self.dropped = ""

    @property
    def is_interrupted(self) -> bool:
        """Whether the caller is a signal handler in the middle of a request of this lock."""
        return is_held_by_this_thread(self._mutex)

    def heartbeat(self, *, lease_ms: int | None = None, data: str | None = None) -> None:
        """Renews the lease, one request. Errors as of `Lock.heartbeat`."""
        lease = self.lease
        if lease.is_from_parent_process:
            lease.require_held()
        with self._mutex:
            # Only now: a release may have ended the lease while this heartbeat waited its turn, and
            # a heartbeat after it would be answered "not held" and look like a theft.
            lease.require_held()
            if lease_ms is not None:
                # It may be written without an answer, and be shorter than before.
                now = self._access.settings.clock.monotonic()
                lease.shorten(now + longest_own_ms(lease_ms) / 1000)
            wanted_ms = round(lease.seconds * 1000) if lease_ms is None else lease_ms
            request = HeartbeatRequest(
                lock_name=lease.lock_name,
                owner_id=lease.owner_id,
                lease_ms=lease.lease_ms_until_end(wanted_ms),
                data=data,
            )
            answer = renew_lease(self._access.context(deadline=lease.ends_at), request)
            if answer is None:
                lease.lose(_TAKEN, taken=True)
            elif answer.fencing_token != lease.fencing_token:
                # Another process has this owner_id, and was granted the lock after this grant was
                # over. What was decided under the old token is stale.
                lease.lose(_GRANTED_AGAIN, taken=True)
            else:
                lease.renew(answer, lease_ms=wanted_ms)
            lease.require_held()

    def try_heartbeat(self) -> bool:
        """Renews the lease; returns whether that succeeded, and logs why not.

        A lock whose max_hold is over is given back instead, without the rest of its lease.
        """
        if self.dropped:
            logger.warning(self.dropped)
            self.dropped = ""
        if self.lease.is_outlived:
            try:
                self._release(was_lost=True, seconds=RELEASE_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever it is, the lease ends the lock
                text = "lock %r: not released at the end of its max_hold; its lease ends it: %s"
                logger.warning(text, self.lease.lock_name, error)
            return False
        try:
            self.heartbeat()
        except LockLost:
            return False  # The loss was reported already.
        except LockStoreUnavailable as error:
            self.lease.heartbeat_failure = f"its heartbeats fail: {error}"
            logger.warning("lock %r: heartbeat: %s", self.lease.lock_name, error)
            return False
        except Exception as error:
            self.lease.heartbeat_failure = f"its heartbeats fail: {error}"
            # For instance no permission: that may be put right before the lease is over.
            logger.exception(
                "lock %r: heartbeat failed; it is tried again until the lease is over",
                self.lease.lock_name,
            )
            return False
        return True

    def release(self) -> bool:
        """Ends renewals, then releases; returns whether the lock was held until then.

        A lock whose lease is over is released too, in case no one has taken it.
        """
        if self.lease.is_from_parent_process:
            return False
        was_lost = self.lease.is_lost()
        try:
            self._release_has_begun = True
            # Before the mutex: from here on `check` says no, and a heartbeat that waits for the
            # mutex is not sent any more.
            self.lease.change_state(LeaseState.HELD, LeaseState.RELEASING)
            if self.is_interrupted:
                message = (
                    f"lock {self.lease.lock_name!r}: not released: a signal handler asks for it in "
                    "the middle of a request of this lock, and would wait for itself; the lease "
                    "ends it"
                )
                raise LockStoreUnavailable(message)  # noqa: TRY301 - as of a request
            return self._release(was_lost=was_lost, seconds=RELEASE_SECONDS)
        except LockStoreUnavailable:
            raise
        except BaseException:  # Interrupted, at any moment: perhaps before anything was sent.
            with suppress(Exception):
                self._release(was_lost=was_lost, seconds=0)
            raise

    def is_settled(self) -> bool:
        """Whether nothing is left to be released."""
        return self.lease.state() in {LeaseState.RELEASED, LeaseState.LOST}

    def is_over(self) -> bool:
        """Whether the lease is over: then a release helps little."""
        return self.lease.is_over()

    def is_abandoned(self) -> bool:
        """Always: a release beside another one is none."""
        return True

    def release_at_close(self) -> None:
        """Releases at the end of a client; what prevents it is logged."""
        try:
            self.release()
        except Exception:
            logger.exception(
                "lock %r: release at close failed; the lease ends it", self.lease.lock_name
            )

    def write(self, call: GuardedCall, send: Callable[[GuardedCall], None]) -> None:
        """Sends a write that DynamoDB allows only to the holder, and learns from its outcome."""
        # No mutex, unlike a release: heartbeats and other writes of this lock may go beside it, and
        # DynamoDB decides by the grant.
        if not call.may_have_happened:
            self.lease.require_held()
        try:
            send(call)
        except LockLost:
            # Without the mutex our own release may have gone first; that is no loss.
            self.lease.lose(_REFUSED, taken=True, unless_releasing=True)
            raise

    def write_and_release(self, call: GuardedCall, send: Callable[[GuardedCall], None]) -> None:
        """Sends such a write that releases the lock too."""
        lease = self.lease
        if lease.is_from_parent_process:
            lease.require_held()
        with self._mutex:
            was_held = lease.state() is LeaseState.HELD
            if not call.may_have_happened and lease.state() is not LeaseState.RELEASING:
                lease.require_held()
            try:
                # Before it is sent, as in `release`: the next owner may hold the lock by the time
                # its answer is here. Renewed by a heartbeat, it would be reported as stolen.
                lease.change_state(LeaseState.HELD, LeaseState.RELEASING)
                send(call)
                lease.change_state(LeaseState.RELEASING, LeaseState.RELEASED)
            except LockLost:
                # An earlier write with release, of unknown outcome, may have ended the grant.
                if not self._may_be_released:
                    lease.lose(_REFUSED, taken=True)
                raise
            except BaseException:
                if call.may_have_happened:
                    self._may_be_released = True
                elif was_held:  # Surely refused, or not sent.
                    lease.change_state(LeaseState.RELEASING, LeaseState.HELD)
                    if self._release_has_begun:  # It waits for this write.
                        lease.change_state(LeaseState.HELD, LeaseState.RELEASING)
                raise

    def _release(self, *, was_lost: bool, seconds: float) -> bool:
        with self._mutex:
            if self.lease.state() is LeaseState.RELEASED:
                return True
            if self.lease.taken:
                return False
            lease = self.lease
            request = ReleaseRequest(
                lock_name=lease.lock_name,
                owner_id=lease.owner_id,
                tells_grant=False,
                fencing_token=lease.fencing_token,
            )
            try:
                now = self._access.settings.clock.monotonic()
                seen = None if self._may_be_released else self._queue.seen_by_holder(now)
                answer, attempts = self._access.repeat(
                    lambda context, attempt: release(
                        context, request, seen=seen if attempt == 1 else None
                    ),
                    seconds=seconds,
                )
                if was_lost:
                    lease.lose("it was released after its end", taken=True)  # Not once more.
                # "Not held" after an attempt of unknown outcome may well be the doing of that.
                released = attempts > 1 or isinstance(answer, Released)
                if released or self._may_be_released:
                    self.lease.change_state(LeaseState.RELEASING, LeaseState.RELEASED)
                    return not was_lost
            except BaseException:
                # The request may have been written. A repeat that finds nothing to release is then
                # a success, and no loss.
                self._may_be_released = True
                raise
        self.lease.lose(
            "another owner had it, or it was freed by force, before its release", taken=True
        )
        return False
