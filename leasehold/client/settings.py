"""The settings of both clients, and the options of a lock, with all their checks."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from leasehold.client import arguments
from leasehold.client.acquisition import Acquisition
from leasehold.client.arguments import Timing, refuse, require_seconds
from leasehold.client.connection import Connection
from leasehold.client.local_waiters import LocalWaiters
from leasehold.client.lock_events import LockEvents, OnEvent
from leasehold.client.logging import log_event
from leasehold.client.store_factory import StoreFactory
from leasehold.clock import Clock
from leasehold.dynamodb.aws_clock import AwsClock
from leasehold.protocol.model import AcquireRequest
from leasehold.store.events import Observe
from leasehold.wire import rules
from leasehold.wire.item_size import require_room_for_all

DEFAULT_LEASE_SECONDS: Final = 60.0
_LEAST_DEFAULT_WAIT_SECONDS: Final = 120.0
_DEFAULT_WAIT_IN_LEASES: Final = 2
"""A crashed holder is replaced a little after the end of its lease."""
_SHORTEST_PERIOD_SECONDS: Final = 0.05
_MOST_WORKERS: Final = 1000

_Callback = TypeVar("_Callback")


@dataclass(frozen=True, slots=True)
class LockOptions(Generic[_Callback]):
    """The arguments of `LockClient.acquire`, in their order."""

    name: str
    lease: float | None
    wait: float | None
    limit: int
    data: Mapping[str, Any] | None
    owner_name: str | None
    on_lost: _Callback | None
    on_danger: _Callback | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The arguments of a client, as `LockClient` describes them, but for its AWS clients.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    table_name: str
    owner_name: str | None
    lease: float
    wait: float | None
    timing: Timing
    longest_poll: float
    max_workers: int
    best_effort_release: bool
    observe: Observe | None
    on_event: OnEvent | None
    clock: Clock
    uses_dates: bool

    def __post_init__(self) -> None:
        """Checks all rules."""
        if self.owner_name is not None:
            rules.require("owner_name", rules.OWNER_NAME, self.owner_name)
        rules.require("lease", rules.LEASE_SECONDS, self.lease)
        if self.wait is not None:
            arguments.require_wait(self.wait)
        for field in ("heartbeat_every", "safe_period"):
            seconds = getattr(self.timing, field)
            if seconds is not None:
                require_seconds(field, seconds, least=_SHORTEST_PERIOD_SECONDS, most=math.inf)
        self.timing.require_room(self.lease)
        self.timing.warn_of_other_meaning(self.lease)
        require_seconds(
            "longest_poll", self.longest_poll, least=_SHORTEST_PERIOD_SECONDS, most=3600
        )
        if type(self.max_workers) is not int or not 1 <= self.max_workers <= _MOST_WORKERS:
            rule = f"must be a whole number from 1 to {_MOST_WORKERS}"
            refuse("max_workers", rule, self.max_workers)
        rules.require("table_name", rules.TABLE_NAME, self.table_name)
        if isinstance(self.clock, str):
            refuse("clock", 'must be "system", or left out', self.clock)
        if not isinstance(self.best_effort_release, bool):
            refuse("best_effort_release", "must be True or False", self.best_effort_release)
        arguments.require_callable("observe", self.observe)
        arguments.require_callable("on_event", self.on_event)

    def longest_wait(self, lease: float | None) -> float:
        """Seconds that `acquire` waits by default for a lock with such a lease.

        Raises:
            InvalidRequest: the lease breaks its rule.
        """
        lease = self.lease if lease is None else lease
        rules.require("lease", rules.LEASE_SECONDS, lease)
        if self.wait is not None:
            return self.wait
        return max(_LEAST_DEFAULT_WAIT_SECONDS, _DEFAULT_WAIT_IN_LEASES * lease)

    def store_factory(self, connection: Connection) -> StoreFactory:
        """Stores over the table."""
        return StoreFactory(
            connection=connection,
            table_name=self.table_name,
            clock=self.clock,
            aws_clock=AwsClock(self.clock, uses_dates=self.uses_dates),
            observe=self.observe or log_event,
            local_waiters=LocalWaiters(self.clock),
        )

    def acquisition(
        self,
        options: LockOptions[Any],
        store_factory: StoreFactory,
        *,
        events: LockEvents,
        require_open: Callable[[], None],
    ) -> Acquisition:
        """A new acquisition, with an owner_id of its own.

        Raises:
            InvalidRequest: an option breaks its rule.
        """
        lease = self.lease if options.lease is None else options.lease
        wait = self.longest_wait(lease) if options.wait is None else options.wait
        owner_name = self.owner_name if options.owner_name is None else options.owner_name
        owner_name = arguments.default_owner_name() if owner_name is None else owner_name
        arguments.require_wait(wait)
        lock_name = rules.plain_text("name", rules.LOCK_NAME, options.name)
        rules.require("lease", rules.LEASE_SECONDS, lease)
        rules.require("limit", rules.LIMIT, options.limit)
        owner_name = rules.plain_text("owner_name", rules.OWNER_NAME, owner_name)
        limit = int(options.limit)
        require_room_for_all(limit=limit, owner_name=owner_name, execution_arn=None)
        request = AcquireRequest(
            lock_name=lock_name,
            owner_id=str(uuid.uuid4()),
            owner_name=owner_name,
            lease_ms=round(lease * 1000),
            limit=limit,
            data=arguments.as_text(options.data),
            waits=wait > 0,
        )
        self.timing.require_room(lease)
        arguments.require_callable("on_lost", options.on_lost)
        arguments.require_callable("on_danger", options.on_danger)
        return Acquisition(
            store_factory,
            request,
            wait=float(wait),
            longest_poll=self.longest_poll,
            events=events,
            require_open=require_open,
        )
