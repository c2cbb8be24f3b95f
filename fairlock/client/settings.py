"""The settings of both clients, with all their defaults and checks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, TypedDict

from fairlock.aws.retry import CLOCK
from fairlock.client import arguments
from fairlock.client.arguments import Timing, refuse, require_seconds
from fairlock.client.connection import table_or_default
from fairlock.client.reporting import OnEvent
from fairlock.clock import Clock, Seconds, in_seconds
from fairlock.errors import explained
from fairlock.wire import rules

_LEAST_DEFAULT_WAIT_SECONDS: Final = 120.0
_DEFAULT_WAIT_IN_LEASES: Final = 2
"""A crashed holder is replaced a little after the end of its lease."""
_SHORTEST_PERIOD_SECONDS: Final = 0.05
_MOST_WORKERS: Final = 1000


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
