"""`Lock`: one lock that this process holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fairlock.client.arguments import (
    with_explained_calls,
)
from fairlock.client.base_lock import BaseLock
from fairlock.client.heartbeats import Heartbeats
from fairlock.client.local_lease import LeaseState
from fairlock.client.services import ClientServices
from fairlock.client.threads import Callbacks
from fairlock.clock import Seconds

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class LockServices(ClientServices):
    """What all locks of a `LockClient` use."""

    heartbeats: Heartbeats
    callbacks: Callbacks


@with_explained_calls
class Lock(BaseLock):
    """One lock that this process holds, until it is released or lost.

    Guaranteed: as long as `check` does not raise, no other owner has been granted this permit. The
    lease is measured from the moment at which its last successful renewal was **sent**, by a clock
    that also runs while the machine sleeps, and ends before the stored end by AWS's clock. So the
    wall clocks of this machine and of all others may be wrong.

    Not guaranteed:
        * That the answer of `check` still holds a moment later. No lease can promise that a process
          which stalls between the check and its next step notices in time. Pass `fencing_token` on,
          or write through `transact_write`, where it matters.
        * That `check` knows of a release by force, or by another process with this owner_id, before
          the next heartbeat.

    `LockClient` makes it, and several threads may use it. A forked child's copy is lost, and does
    not affect the lock of the parent. Each call that sends a request may also raise
    `LockStoreMisconfigured` or `LockItemMalformed`: a repeat does not help then.
    """

    _services: LockServices

    @property
    def lost(self) -> threading.Event:
        """Set when the lock is lost: its lease has ended, or another owner holds the lock.

        A release does not set it.
        """
        return self._handle.lease.lost

    def heartbeat(
        self, *, lease: Seconds | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Renews the lease now, by one request. The client does so by itself, too.

        Args:
            lease: seconds or a timedelta; from now on the lease of this lock. None leaves it as it
                is.
            data: replaces what is stored with the lock. None leaves it as it is.

        Raises:
            LockLost: this grant has ended, even if the same owner_id was granted the lock again.
            LockStoreUnavailable: outcome unknown. The lock is held as long as `check` says so.
            InvalidRequest: an argument breaks its rule.
        """
        self._renew(lease, data)

    def release(self) -> bool:
        """Releases the lock, or hands it to the oldest waiter. One request if no owner waits.

        No heartbeat is under way any more when this returns, and none will be sent. May be
        repeated. If it is interrupted (by a KeyboardInterrupt, say), the release is tried once more
        before the interrupt goes on, and once more by the end of `with LockClient(…)`.

        Returns:
            Whether the lock was held until then; False if it had been lost before. (If its lease
            was over and no one had taken it, it is free now; else nothing was changed.)

        Raises:
            LockStoreUnavailable: outcome unknown. Heartbeats have ended, so the lock is free when
                its lease is over at the latest; or repeat the call. Raised at once in a signal
                handler that has come in the middle of a request of this lock.
        """
        if self._handle.lease.is_from_parent_process:  # Its mutexes may be locked for ever.
            return False
        try:
            self._end_heartbeats()
            return self._handle.release()
        except BaseException:
            if self._handle.lease.is_held():  # Interrupted before the release had begun.
                with suppress(Exception):
                    self._end_heartbeats()
                    self._handle.release()
            raise
        finally:
            self._services.unreleased.discard_if_settled(self._handle)

    def transact_write(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        token: str | None = None,
        release: bool = False,
    ) -> None:
        """Commits all items if the lock is held at that moment, or none of them. One request.

        Args:
            items: as for boto3's `transact_write_items`, with low-level attribute values; at most
                99, with `release` 98. Any tables, but not the items of this lock.
            token: names this write, so that a repeat of the call is the same write and happens
                once. Make a new one for each write (`str(uuid.uuid4())`), before the first call.
            release: whether the lock is released in the same transaction, to the oldest waiter if
                there is one (two requests more).

        Raises:
            LockLost: the lock is gone; nothing was written.
            TransactionRefused: a condition of the items failed; nothing was written, and the lock
                is held as before.
            InvalidRequest: the items break a rule, or the token belongs to a write with other
                contents; this call has written nothing.
            LockStoreUnavailable: outcome unknown. With a token, repeat the same call on this lock;
                so too after anything else that interrupted it, of a signal handler for instance.
                Without a token the same call is a new write: read the items first. With
                `release` there are no more heartbeats from then on, whatever the repeat says.
        """
        self._write(self._guarded().call(items, token=token, release=release))

    def __enter__(self) -> Self:
        """The lock itself.

        Raises:
            LockLost: it is lost, or was released.
            InvalidRequest: the caller is in a block of this lock, whose inner end would release it.
        """
        self._enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Releases, as `LockClient.hold` does."""
        self._leave()
        if self._handle.lease.is_from_parent_process:
            return
        try:
            if not self.release():
                self.check()
        except Exception as lock_error:
            if self._handle.lease.state() is LeaseState.RELEASED:
                raise  # Nothing is wrong: a signal handler raised it to leave the block.
            self._raise_or_note(lock_error, error)

    def _call_soon(self, description: str, callback: Callable[[], Any]) -> None:
        self._services.callbacks.call_soon(description, callback)


Callback = Callable[[Lock, str], object]
"""Called with a lock and the reason, in a thread of the client's; what it raises is logged."""
