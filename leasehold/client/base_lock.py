"""What a lock tells of itself, whether threads or an event loop renew it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from leasehold.client.acquisition import TimedGrant
from leasehold.client.arguments import Timing, as_text, require
from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.store_factory import StoreFactory
from leasehold.guarded.fencing import DEFAULT_ATTRIBUTE, FenceCondition
from leasehold.guarded.guarded_writes import GuardedWrites
from leasehold.guarded.pending_calls import PendingCall
from leasehold.protocol.model import AcquireRequest
from leasehold.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


class BaseLock:
    """The part of a lock that answers without a request."""

    _held: LeaseHandle

    def __init__(
        self,
        stores: StoreFactory,
        request: AcquireRequest,
        granted: TimedGrant,
        *,
        data: Mapping[str, Any] | None,
        timing: Timing,
    ) -> None:
        self._request = request
        self._fencing_token = granted.grant.fencing_token
        self._data = data
        self._timing = timing
        self._store_factory = stores
        self._guarded_writes: GuardedWrites | None = None
        self._making = threading.Lock()

    def __repr__(self) -> str:
        """The lock without its owner_id, which is nobody's business."""
        kind = type(self).__name__
        return f"<{kind} {self.name!r} token {self.fencing_token}, {self.remaining:.1f} s left>"

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
        """Names this one acquisition, and is the proof of ownership: do not show it around."""
        return self._request.owner_id

    @property
    def data(self) -> Mapping[str, Any] | None:
        """What was stored with the lock, last by `acquire` or `heartbeat`."""
        return self._data

    @property
    def fencing_token(self) -> int:
        """The token of this grant: higher than those of all grants of this name before it.

        It is the one that was granted, for ever: also after the loss, when it is out of date, so
        that whoever it is shown to can refuse it.
        """
        return self._fencing_token

    @property
    def lease(self) -> float:
        """Seconds for which each renewal holds."""
        return self._held.lease_seconds

    @property
    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if the lock is not held."""
        return self._held.remaining()

    def check(self) -> None:
        """Returns if the lock is held, by this process's own clock. No request.

        Raises:
            LockLost: the lease is over, somebody else has the place, or it was released.
        """
        self._held.require()

    def condition_check(self) -> TransactWriteItemTypeDef:
        """An item for a DynamoDB transaction of your own: I still hold this lock, with this token.

        DynamoDB decides at the moment of the transaction, so no stall before it matters.

        Raises:
            LockLost: only in a forked child, which has no locks of its parent's.
        """
        return self._guarded().condition_check()

    def fence_condition(self, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
        """A condition for a single write, by which the item refuses older tokens than it has seen.

        Args:
            attribute: where in the item the highest token is kept.

        Raises:
            LockLost: only in a forked child, which has no locks of its parent's.
        """
        return self._guarded().fence_condition(attribute)

    def _as_stored(
        self, lease: float | None, data: Mapping[str, Any] | None
    ) -> tuple[int | None, str | None]:
        """The arguments of a heartbeat, if they keep the rules."""
        text = as_text(data)
        if lease is None:
            return None, text
        require("lease", rules.LEASE_SECONDS, lease)
        self._timing.require_room(lease)
        return round(lease * 1000), text

    def _write(self, call: PendingCall) -> None:
        write = self._held.write_and_release if call.release else self._held.write
        write(call, self._guarded().send)

    def _guarded(self) -> GuardedWrites:
        """One object for as long as the lock is held: it remembers calls of unknown outcome."""
        if self._held.is_from_parent_process:
            self._held.require()
        if self._guarded_writes is None:
            context = self._store_factory.context()
            made = GuardedWrites(
                self._store_factory.connection.dynamodb(),
                table_name=self._store_factory.table_name,
                lock_name=self.name,
                owner_id=self.owner_id,
                fencing_token=self.fencing_token,
                context=context,
            )
            with self._making:  # Only around this: code on the bridge may have waited before.
                self._guarded_writes = self._guarded_writes or made
        return self._guarded_writes
