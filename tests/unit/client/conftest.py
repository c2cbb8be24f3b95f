"""Fixtures: a table, a clock, clients that are closed, a lock table in the embedded AWS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import LockClient, create_table
from fairlock.store.context import Event
from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.unit.client.doubles import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MakeClient = Callable[..., LockClient]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(clock: ManualClock) -> Table:
    return Table(clock)


@pytest.fixture
def store_events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What clients would log of their store; not logged."""
    seen: list[Event] = []
    monkeypatch.setattr("fairlock.client.connection.log_event", seen.append)
    return seen


@pytest.fixture
def make_client(table: Table, clock: ManualClock) -> Iterator[MakeClient]:
    """Clients of the table and the clock; heartbeats, if a test wants some, have threads."""
    made = []

    def make(name: str = "anna", **settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        defaults: dict[str, Any] = {"client": table, "clock": clock, "heartbeat_every": math.inf}
        made.append(LockClient("locks", **{**defaults, "owner_name": name, **settings}))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture(scope="session")
def lock_table(aws: LocalAws) -> str:
    """The name of a lock table in the embedded AWS."""
    client: DynamoDBClient = aws.client("dynamodb")
    create_table(client, "client-locks")
    return "client-locks"
