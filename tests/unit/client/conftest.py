"""Fixtures: tables, clocks, clients that are closed, heartbeats in simulated time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import LockClient, create_table
from fairlock.client.heartbeats import Heartbeats, ScheduledHeartbeat
from fairlock.store.context import Event
from testbed.localaws import LocalAws
from tests.unit.client.doubles import EventfulClock, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MakeClient = Callable[..., LockClient]


class SimulatedHeartbeats(Heartbeats):
    """Begins each heartbeat at its moment, one after the other, while time is passed by hand."""

    def _start(self) -> None:
        """No threads."""

    def _begin(self, scheduled: ScheduledHeartbeat) -> None:
        self._send(scheduled)

    def pass_time(self, clock: EventfulClock, seconds: float) -> None:
        """Lets time pass, with everything that is planned, and all heartbeats in it."""
        ends_at = clock.monotonic() + seconds
        while (now := clock.monotonic()) < ends_at:
            for scheduled in self._schedule.due(now):
                self._begin(scheduled)
            moment = min(self._schedule.next_at(), ends_at)
            clock.wait(max(moment - now, 0.001))
        for scheduled in self._schedule.due(clock.monotonic()):
            self._begin(scheduled)


@dataclass
class Beating:
    """A client whose heartbeats happen in simulated time."""

    locks: LockClient
    clock: EventfulClock
    told: list[str] = field(default_factory=list)

    def pass_time(self, seconds: float) -> None:
        heartbeats = self.locks._services.heartbeats  # noqa: SLF001 - they are simulated
        assert isinstance(heartbeats, SimulatedHeartbeats)
        heartbeats.pass_time(self.clock, seconds)


@pytest.fixture
def clock() -> EventfulClock:
    return EventfulClock()


@pytest.fixture
def table(clock: EventfulClock) -> Table:
    return Table(clock=clock)


@pytest.fixture
def store_events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What clients would log of their store; not logged."""
    seen: list[Event] = []
    monkeypatch.setattr("fairlock.client.connection.log_event", seen.append)
    return seen


@pytest.fixture
def make_client(table: Table, clock: EventfulClock) -> Iterator[MakeClient]:
    """Clients over the table in memory whose time is the fake clock's: no heartbeats of their own.

    (A heartbeat thread would look at that clock at moments of its own choosing.)
    """
    made = []

    def make(name: str = "anna", **settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        defaults: dict[str, Any] = {
            "client": table,
            "clock": clock,
            "owner_name": name,
            "heartbeat_every": math.inf,
        }
        client = LockClient("locks", **{**defaults, **settings})
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def lock_table(aws: LocalAws) -> str:
    """The name of a lock table in the embedded AWS."""
    client: DynamoDBClient = aws.client("dynamodb")
    create_table(client, "client-locks")
    return "client-locks"


@pytest.fixture
def beating(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> Beating:
    """A client with a lease of 30 s, renewed every 10 s, in danger 10 s before its end."""
    monkeypatch.setattr("fairlock.client.lock_client.Heartbeats", SimulatedHeartbeats)
    return Beating(make_client("anna", lease=30, heartbeat_every=None), clock)
