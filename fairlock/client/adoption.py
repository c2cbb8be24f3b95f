"""Adopt: go on with a lock that a function, a workflow or another process has acquired."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from fairlock.client import arguments
from fairlock.client.arguments import LockOptions
from fairlock.client.settings import ClientSettings
from fairlock.client.store_factory import StoreFactory
from fairlock.clock import Seconds, in_seconds
from fairlock.errors import LockLost
from fairlock.protocol.description import read_data
from fairlock.protocol.model import AcquireRequest, Grant, HeartbeatRequest, Holder
from fairlock.wire import rules

_Callback = TypeVar("_Callback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption(Generic[_Callback]):
    """The arguments of `LockClient.adopt`.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    settings: ClientSettings
    name: str
    owner_id: str
    lease: Seconds | None
    on_lost: _Callback | None
    on_danger: _Callback | None

    def __post_init__(self) -> None:
        """Checks all rules."""
        name = rules.plain_text("name", rules.LOCK_NAME, self.name)
        owner_id = rules.plain_text("owner_id", rules.OWNER_ID, self.owner_id)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "owner_id", owner_id)
        if self.lease is not None:
            lease = in_seconds(self.lease)
            rules.require("lease", rules.LEASE_SECONDS, lease)
            self.settings.timing.require_room(lease)
        arguments.require_callable("on_lost", self.on_lost)
        arguments.require_callable("on_danger", self.on_danger)

    def run(self, store_factory: StoreFactory) -> AdoptedGrant[_Callback]:
        """Reads the lock, and renews its lease.

        Raises:
            LockLost: this owner_id does not hold the lock.
            InvalidRequest: the stored lease is too short for the client's heartbeats; nothing was
                written.
            LockStoreUnavailable: outcome unknown; nothing was taken from anybody.
        """
        store = store_factory.store()
        holder = store.read_state(self.name).holder(self.owner_id)
        if holder is None:
            raise self._not_held()
        if self.lease is None:
            self.settings.timing.require_room(holder.lease_ms / 1000)
        data = read_data(self.name, holder.data)
        lease_ms = None if self.lease is None else round(in_seconds(self.lease) * 1000)
        heartbeat = HeartbeatRequest(lock_name=self.name, owner_id=self.owner_id, lease_ms=lease_ms)
        answer = store.heartbeat(heartbeat)
        if not isinstance(answer, Grant):
            raise self._not_held()
        return AdoptedGrant(
            request=self._request(holder, answer),
            options=LockOptions(
                name=self.name,
                lease=self.lease,
                max_wait=0,
                limit=holder.limit,
                data=data,
                owner_name=holder.owner_name,
                on_lost=self.on_lost,
                on_danger=self.on_danger,
            ),
            granted=answer,
        )

    def _request(self, holder: Holder, grant: Grant) -> AcquireRequest:
        """The request by which the lock might have been acquired."""
        return AcquireRequest(
            lock_name=self.name,
            owner_id=self.owner_id,
            owner_name=holder.owner_name,
            lease_ms=grant.lease_ms,
            limit=holder.limit,
            data=holder.data,
            execution_arn=holder.execution_arn,
        )

    def _not_held(self) -> LockLost:
        message = "it is not held by this owner_id: it was released, or its lease is over"
        return LockLost(f"lock {self.name!r}: {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedGrant(Generic[_Callback]):
    """What a lock object is made of."""

    request: AcquireRequest
    options: LockOptions[_Callback]
    granted: Grant
