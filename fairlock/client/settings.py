"""The settings of a client of either kind, and what all its locks use.

Both have all defaults and checks: of the client, of each lock that is acquired, and of one that is
adopted, which a function, a workflow or another process has acquired.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypedDict, TypeVar

from botocore.exceptions import BotoCoreError

from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import CLOCK, RetryBudget, misconfigured
from fairlock.backoff import Random
from fairlock.client import arguments
from fairlock.client.acquisition import Acquisition
from fairlock.client.arguments import LockOptions, Timing, refuse, require_seconds
from fairlock.client.connection import Connection, table_or_default
from fairlock.client.entered_locks import EnteredLocks
from fairlock.client.heartbeats import BaseHeartbeats
from fairlock.client.lease_handle import RELEASE_SECONDS, Unreleased
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.reporting import LockEvents, OnEvent, log_event
from fairlock.clock import AwsClock, Clock, Seconds, in_seconds, lease_for
from fairlock.errors import LockLost, LockStoreUnavailable, explained
from fairlock.protocol.description import read_data
from fairlock.protocol.items import read_state
from fairlock.protocol.model import AcquireRequest, Grant, HeartbeatRequest
from fairlock.protocol.schema import lock_key
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import renew_lease
from fairlock.store.turns import KnownPaces
from fairlock.wire import rules
from fairlock.wire.requests import require_room_for_all

_LEAST_DEFAULT_WAIT_SECONDS: Final = 120.0
_DEFAULT_WAIT_IN_LEASES: Final = 2
"""A crashed holder is replaced a little after the end of its lease."""
_SHORTEST_PERIOD_SECONDS: Final = 0.05
_MOST_WORKERS: Final = 1000
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_OF_ALL_SECONDS: Final = 30.0
_PAUSE_SHARE: Final = 0.01
_Answer = TypeVar("_Answer")
_Callback = TypeVar("_Callback")


class ClientOptions(TypedDict, total=False):
    """The settings of a client by name, with the meaning and the defaults of `LockClient`."""

    owner_name: str | None
    lease: Seconds
    max_wait: Seconds | None
    heartbeat_every: Seconds | None
    safe_period: Seconds | None
    longest_poll: Seconds
    max_workers: int
    best_effort_release: bool
    on_event: OnEvent | None


class ClientSettings:
    """The arguments of a client, as `LockClient` describes them, but for its AWS clients."""

    @explained
    def __init__(
        self,
        table_name: str | None,
        *,
        machine_clock: Callable[[], Clock],
        session: object = None,
        client: object = None,
        stepfunctions: object = None,
        clock: Clock | Literal["system"] | None = None,
        owner_name: str | None = None,
        lease: Seconds = rules.DEFAULT_LEASE_SECONDS,
        max_wait: Seconds | None = None,
        heartbeat_every: Seconds | None = None,
        safe_period: Seconds | None = None,
        longest_poll: Seconds = 5.0,
        max_workers: int = 32,
        best_effort_release: bool = True,
        on_event: OnEvent | None = None,
    ) -> None:
        """Checks all rules."""
        del session, client, stepfunctions
        self.table_name = table_or_default(table_name)
        self.owner_name = owner_name
        self.lease = in_seconds(lease)
        self.max_wait = in_seconds(max_wait)
        self.timing = Timing(
            heartbeat_every=in_seconds(heartbeat_every), safe_period=in_seconds(safe_period)
        )
        self.longest_poll = in_seconds(longest_poll)
        self.max_workers = max_workers
        self.best_effort_release = best_effort_release
        self.on_event = on_event
        self.clock = machine_clock() if clock is None or clock == "system" else clock
        self.uses_dates = clock != "system"
        if owner_name is not None:
            rules.require("owner_name", rules.OWNER_NAME, owner_name)
        rules.require("lease", rules.LEASE_SECONDS, self.lease)
        if self.max_wait is not None:
            arguments.require_max_wait(self.max_wait)
        least = _SHORTEST_PERIOD_SECONDS
        for name in ("heartbeat_every", "safe_period"):
            seconds = getattr(self.timing, name)
            if seconds is not None:
                require_seconds(name, seconds, least=least, most=math.inf)
        self.timing.require_room(self.lease, blamed="timing")
        require_seconds("longest_poll", self.longest_poll, least=least, most=3600)
        if type(max_workers) is not int or not 1 <= max_workers <= _MOST_WORKERS:
            refuse("max_workers", f"must be a whole number from 1 to {_MOST_WORKERS}", max_workers)
        rules.require("table_name", rules.TABLE_NAME, self.table_name, show_text=True)
        rules.require("clock", CLOCK, self.clock)
        arguments.require_bool("best_effort_release", best_effort_release)
        arguments.require_callable("on_event", on_event, "event")

    def longest_wait(self, lease: Seconds | None) -> float:
        """Seconds that `acquire` waits by default for a lock with such a lease."""
        lease = self.lease if lease is None else in_seconds(lease)
        rules.require("lease", rules.LEASE_SECONDS, lease)
        if self.max_wait is not None:
            return self.max_wait
        return max(_LEAST_DEFAULT_WAIT_SECONDS, _DEFAULT_WAIT_IN_LEASES * lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices:
    """What all locks of one client use, of either kind. Each request has a deadline of its own."""

    settings: ClientSettings
    connection: Connection
    aws_clock: AwsClock
    local_waiters: LocalWaiters
    heartbeats: BaseHeartbeats
    events: LockEvents
    entered: EnteredLocks
    unreleased: Unreleased = field(default_factory=Unreleased)
    random: Random = field(default=random.random)
    known_paces: KnownPaces = field(default_factory=KnownPaces)
    of_asyncio: bool = False

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """What a request needs that must be done by a reading of the monotonic clock."""
        settings = self.settings
        try:
            dynamodb = self.connection.dynamodb()
        except (BotoCoreError, ValueError) as error:
            raise misconfigured(error, table_name=settings.table_name, region=None) from error
        retry_budget = RetryBudget(deadline=deadline, clock=settings.clock, random=self.random)
        table = LockTable(
            dynamodb, settings.table_name, retry_budget=retry_budget, aws_clock=self.aws_clock
        )
        return LockContext(
            table=table,
            workflows=self.connection.workflows,
            observe=log_event,
            note_hand_off=self.local_waiters.note,
            retry_budget=retry_budget,
            random=self.random,
        )

    def repeat(
        self,
        call: Callable[[LockContext, int], _Answer],
        *,
        seconds: float = RELEASE_SECONDS,
        is_vain: Callable[[], bool] = lambda: False,
    ) -> tuple[_Answer, int]:
        """Makes a call again after each unknown outcome, until it is answered, or raises.

        Returns the answer, and how many attempts it took. The more seconds, the longer the pauses:
        callers that wait for hours must not keep a table busy that has too much to do. After each
        failure `is_vain` tells whether a further attempt can bring no answer.
        """
        clock = self.settings.clock
        context = self.context(deadline=clock.monotonic() + seconds)
        budget = RetryBudget(
            seconds=seconds,
            clock=clock,
            random=self.random,
            first_pause_seconds=_FIRST_PAUSE_SECONDS,
            longest_pause_seconds=max(
                min(seconds * _PAUSE_SHARE, _LONGEST_PAUSE_OF_ALL_SECONDS), _LONGEST_PAUSE_SECONDS
            ),
        )
        began, attempt = clock.monotonic(), 1
        while True:
            try:
                return call(context, attempt), attempt
            except LockStoreUnavailable:
                if is_vain() or budget.is_spent(since=began):
                    raise
            budget.pause(attempt - 1)
            attempt += 1

    def acquisition(
        self, options: LockOptions[Any], require_open: Callable[[], None]
    ) -> Acquisition:
        """A new acquisition, with an owner_id of its own."""
        settings = self.settings
        lease = settings.lease if options.lease is None else in_seconds(options.lease)
        max_wait = in_seconds(options.max_wait)
        max_wait = settings.longest_wait(lease) if max_wait is None else max_wait
        owner_name = settings.owner_name if options.owner_name is None else options.owner_name
        owner_name = arguments.default_owner_name() if owner_name is None else owner_name
        arguments.require_max_wait(max_wait)
        lock_name = rules.plain_text("name", rules.LOCK_NAME, options.name)
        arguments.warn_of_missing_part(lock_name)
        rules.require("lease", rules.LEASE_SECONDS, lease)
        arguments.require_bool("shared", options.shared)
        rules.require_one_way(shared=options.shared, only_newest=options.only_newest)
        owner_name = rules.plain_text("owner_name", rules.OWNER_NAME, owner_name)
        limit = rules.limit_of(options.limit, shared=options.shared)
        require_room_for_all(limit=limit, owner_name=owner_name, execution_arn=None)
        request = AcquireRequest(
            lock_name=lock_name,
            owner_id=str(uuid.uuid4()),
            owner_name=owner_name,
            lease_ms=round(lease * 1000),
            limit=limit,
            data=arguments.as_text(options.data),
            waits=max_wait > 0,
            shared=options.shared,
            only_newest=arguments.checked_version(options.only_newest),
        )
        settings.timing.require_room(lease)
        if options.max_hold is not None:
            max_hold = in_seconds(options.max_hold)
            settings.timing.require_hold(max_hold, lease)
            if settings.timing.period(lease) == math.inf:
                # Nothing shortens the lease later, and it frees the lock of a frozen process.
                # A second more, so that the loss is told as the end of max_hold.
                lease_ms = min(request.lease_ms, round(lease_for(max_hold + 1) * 1000))
                request = replace(request, lease_ms=lease_ms)
        options.require_callbacks(of_asyncio=self.of_asyncio)
        if request.waits:
            self.entered.require_that_others_can_release(request)
        return Acquisition(self, request, max_wait=float(max_wait), require_open=require_open)

    def adopt(
        self, owner_id: str, options: LockOptions[_Callback]
    ) -> tuple[AcquireRequest, LockOptions[_Callback], Grant]:
        """Reads a lock, and renews its lease; returns what a lock object is made of."""
        settings = self.settings
        name = rules.plain_text("name", rules.LOCK_NAME, options.name)
        owner_id = arguments.checked_owner_id(owner_id)
        lease = in_seconds(options.lease)
        if lease is not None:
            rules.require("lease", rules.LEASE_SECONDS, lease)
            settings.timing.require_room(lease)
        options.require_callbacks(of_asyncio=self.of_asyncio)
        not_held = LockLost(
            f"lock {name!r}: it is not held by this owner_id: it was released, or its lease has "
            "expired; acquire the lock"
        )
        context = self.context()
        holder = read_state(context.table.read(lock_key(name))).holder(owner_id)
        if holder is None:
            raise not_held
        if lease is None:
            settings.timing.require_room(holder.lease_ms / 1000)
        lease_ms = None if lease is None else round(lease * 1000)
        heartbeat = HeartbeatRequest(lock_name=name, owner_id=owner_id, lease_ms=lease_ms)
        grant = renew_lease(context, heartbeat)
        if grant is None:
            raise not_held
        data = read_data(holder.data)
        known = replace(
            options,
            name=name,
            limit=holder.limit,
            data=data if isinstance(data, Mapping) else None,  # Text: see `describe`.
            owner_name=holder.owner_name,
            shared=holder.shared,
        )
        request = AcquireRequest(
            lock_name=name,
            owner_id=owner_id,
            owner_name=holder.owner_name,
            lease_ms=grant.lease_ms,
            limit=holder.limit,
            data=holder.data,
            execution_arn=holder.execution_arn,
            shared=holder.shared,
        )
        return request, known, grant
