"""`BaseLock`: what locks have in common, whether threads or an event loop renew them."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from fairlock.client.arguments import EnteredOneWay, LockOptions, as_text, refuse
from fairlock.client.entered_locks import Entered
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.client.reporting import LockEventKind, logger
from fairlock.client.services import ClientServices
from fairlock.clock import Seconds, in_seconds
from fairlock.errors import ClientUnusable, LockLost
from fairlock.guarded.conditions import DEFAULT_ATTRIBUTE, FenceCondition, require_alone
from fairlock.guarded.guarded_table import GuardedCall
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_ENTERED_TWICE: Final = (
    "must not begin inside a `with` of the same lock, whose inner end would release it; use "
    "hold(…, reentrant=True)"
)


class BaseLock(EnteredOneWay, ABC):
    """The part of a lock that answers without a request."""

    def __init__(
        self,
        services: ClientServices,
        request: AcquireRequest,
        options: LockOptions[Any],
        granted: Grant,
        *,
        handle_services: ClientServices | None = None,
        mutex: AbstractContextManager[object] | None = None,
    ) -> None:
        self._services = services
        self._settings = services.settings
        self._request = request
        self._options = options
        self._data = options.data
        self._inside: Entered = []
        self._is_entered = False
        self._since = granted.since
        # Before there is a lease: from then on another thread may find its loss, and tell of it.
        self._fencing_token = granted.fencing_token
        self._guarded_writes: GuardedWrites | None = None
        self._mutex = threading.Lock()
        lease = LocalLease(
            self._settings.clock,
            granted,
            timing=self._settings.timing,
            max_hold=math.inf if options.max_hold is None else in_seconds(options.max_hold),
            listener=weakref.WeakMethod(self._tell),
        )
        table = handle_services or services
        self._handle = LeaseHandle(table, lease, mutex=mutex)

    def __repr__(self) -> str:
        """The lock without its owner_id, which proves ownership."""
        kind = type(self).__name__
        return f"<{kind} {self.name!r} token {self.fencing_token}, {self.remaining:.1f} s left>"

    def __del__(self) -> None:
        """Points out a lock that is dropped while it goes on being renewed.

        Takes no mutex: the garbage collector may call this in the middle of anything.
        """
        handle: LeaseHandle | None = getattr(self, "_handle", None)
        if handle is None or handle.lease.is_from_parent_process or handle.lease.has_ended:
            return
        # Its callbacks and the metrics are still to be told what becomes of it, so it goes on
        # living. Python calls `__del__` once only.
        handle.lease.listener = lambda: self._tell
        if handle.lease.period != math.inf and self._is_renewed():
            message = (
                f"lock {self.name!r} was dropped, and its client goes on renewing it: write `with "
                "locks.hold(…) as lock:`, or keep the lock until you have released it"
            )
            handle.dropped = message  # In production logs are read, and this warning is hidden.
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def __getstate__(self) -> NoReturn:
        """Refuses to be copied or pickled: a copy would not know of a release or a loss."""
        message = (
            f"lock {self.name!r} belongs to this process and cannot be copied or pickled: pass its "
            "name and its owner_id on, and adopt it there"
        )
        raise TypeError(message)

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._request.lock_name

    @property
    def owner_name(self) -> str:
        """The label that others see while they wait. It proves nothing."""
        return self._request.owner_name

    @property
    def owner_id(self) -> str:
        """Names this one acquisition, and proves ownership: do not log it.

        Pass it only to a process that takes charge of this lock: see `LockClient.adopt`.
        """
        return self._request.owner_id

    @property
    def data(self) -> Mapping[str, Any] | None:
        """What was stored with the lock, last by `acquire` or `heartbeat`.

        Of an adopted lock, None as well if what is stored is no JSON object.
        """
        return self._data

    @property
    def fencing_token(self) -> int:
        """The token of this grant: higher than those of all grants of this name before it.

        It never changes, not even after a loss: then a newer token exists, by which other systems
        can refuse this one.
        """
        return self._fencing_token

    @property
    def lease(self) -> float:
        """Seconds for which each renewal holds."""
        return self._handle.lease.seconds

    @property
    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if the lock is not held."""
        return self._handle.lease.remaining()

    @property
    def hold_remaining(self) -> float:
        """Seconds until `max_hold` is over; infinite without one, 0 if the lock is not held."""
        lease = self._handle.lease
        left = lease.hold_until - self._settings.clock.monotonic()
        return max(0.0, left) if lease.is_held() else 0.0

    def check(self) -> None:
        """Raises `LockLost` unless the lock is held, by this process's own clock. No request.

        Raises:
            LockLost: the lease is over, another owner has the place, or it was released.
        """
        self._handle.lease.require_held()

    @property
    def shared(self) -> bool:
        """Whether others may share the lock meanwhile: then nothing may be written under it."""
        return self._request.shared

    def condition_check(self) -> TransactWriteItemTypeDef:
        """An item for a DynamoDB transaction of your own: I still hold this lock, with this token.

        DynamoDB decides at the moment of the transaction, so no stall before it matters.

        Raises:
            LockLost: only in a forked child, which has no locks of its parent's.
            InvalidRequest: the lock is shared.
        """
        return self._guarded().condition_check()

    def fence_condition(self, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
        """A condition for a single write, by which the item refuses older tokens than it has seen.

        Args:
            attribute: the attribute of the item that stores the highest token.

        Raises:
            LockLost: only in a forked child, which has no locks of its parent's.
            InvalidRequest: the lock is shared.
        """
        return self._guarded().fence_condition(attribute)

    def _enter(self) -> None:
        """A `with` block of the caller begins. Errors as of `Lock.__enter__`."""
        self.check()
        if self._is_entered:
            refuse("with", _ENTERED_TWICE, self)
        self._is_entered = True
        self._inside = self._services.entered.mine()
        self._inside.append(weakref.ref(self))

    def _leave(self) -> None:
        """It ends, perhaps in another thread, as the block of a generator may."""
        self._is_entered = False
        if (me := weakref.ref(self)) in self._inside:
            self._inside.remove(me)

    def _renew(self, length: Seconds | None, data: Mapping[str, Any] | None) -> None:
        """What `heartbeat` does."""
        text, lease, lease_ms = as_text(data), in_seconds(length), None
        if lease is not None:
            rules.require("lease", rules.LEASE_SECONDS, lease)
            self._settings.timing.require_room(lease)
            lease_ms = round(lease * 1000)
        try:
            self._handle.heartbeat(lease_ms=lease_ms, data=text)
        finally:
            if lease is not None and self._handle.lease.is_held():
                self._begin_heartbeats()
        if data is not None:
            self._data = data

    def _write(self, call: GuardedCall) -> None:
        write = self._handle.write_and_release if call.release else self._handle.write
        try:
            write(call, self._guarded().send)
        finally:
            if call.release:
                self._after_release_with_items()

    def _after_release_with_items(self) -> None:
        """A guarded write that was to release the lock has ended, whatever became of it."""
        if not self._handle.lease.is_held():
            self._end_heartbeats()
            self._services.unreleased.discard_if_settled(self._handle)
        elif not self._is_renewed():
            # While it was under way, the lock counted as released.
            self._begin_heartbeats()

    def _guarded(self) -> GuardedWrites:
        """One object for as long as the lock is held: it remembers calls of unknown outcome."""
        require_alone(shared=self.shared)
        if self._handle.lease.is_from_parent_process:
            self._handle.lease.require_held()
        if self._guarded_writes is None:
            services = self._services
            made = GuardedWrites(
                services.connection.dynamodb(),
                table_name=self._settings.table_name,
                lock_name=self.name,
                owner_id=self.owner_id,
                fencing_token=self.fencing_token,
                context=services.context(),
            )
            with self._mutex:  # Only around this: code on the bridge may have waited before.
                self._guarded_writes = self._guarded_writes or made
        return self._guarded_writes

    def _raise_or_note(self, lock_error: Exception, error: BaseException | None) -> None:
        """Ends a `with` block: raises what was wrong with the lock, or notes it on the error.

        If only the release failed, and `best_effort_release` is on, that is logged.
        """
        if self._handle.lease.is_lost() and not isinstance(lock_error, LockLost):
            # The outage that prevents the release may have outlasted the lease.
            try:
                self.check()
            except LockLost as lost:
                lost.__cause__ = lock_error
                lock_error = lost
        if error is not None:
            if not isinstance(error, LockLost):
                error.add_note(f"At the end of the lock: {lock_error}")
        elif (
            isinstance(lock_error, LockLost | ClientUnusable)
            or not self._settings.best_effort_release
        ):
            raise lock_error
        else:
            logger.warning("lock %r: release failed, its lease ends it: %s", self.name, lock_error)

    def _tell(self, kind: LockEventKind, reason: str) -> None:
        """Logs what the lease reports, and passes it on to the user's hook and callbacks."""
        callback, field, held = None, "", None
        if kind is LockEventKind.IN_DANGER:
            left = self.remaining
            logger.warning("lock %r is in danger, %.1f s left: %s", self.name, left, reason)
            callback, field = self._options.on_danger, "on_danger"
        else:
            held = max(0.0, self._settings.clock.monotonic() - self._since)
        if kind is LockEventKind.LOST:
            logger.warning("lock %r is lost: %s", self.name, reason)
            callback, field = self._options.on_lost, "on_lost"
        self._services.events.report(
            kind,
            lock_name=self.name,
            owner_name=self.owner_name,
            fencing_token=self.fencing_token,
            held_seconds=held,
            reason=reason,
        )
        if callback is not None:
            self._call_soon(f"{field} of lock {self.name!r}", lambda: callback(self, reason))

    def _is_renewed(self) -> bool:
        return self._services.heartbeats.renews(self._handle)

    def _begin_heartbeats(self) -> None:
        """Schedules heartbeats by the lease as it is now."""
        self._services.heartbeats.add(self._handle)

    def _end_heartbeats(self) -> None:
        if not self._handle.lease.is_from_parent_process:  # Its mutexes may be locked for ever.
            self._services.unreleased.add(self._handle)
            self._services.heartbeats.remove(self._handle)

    @abstractmethod
    def _call_soon(self, description: str, callback: Callable[[], Any]) -> None:
        """Calls a user's callback without holding up the caller."""
