"""Fixtures: a table, clients that are closed, a lock table in the embedded AWS."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import LockClient, create_table
from fairlock.store.context import Event
from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.unit.client.doubles import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class Near:
    """A table in memory, and clients of it; heartbeats, if a test wants some, have threads."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.table = Table(clock)
        self.made: list[LockClient] = []

    def client(self, name: str = "anna", **settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        given: dict[str, Any] = {"client": self.table, "clock": self.clock, "owner_name": name}
        given |= {"heartbeat_every": math.inf, **settings}
        self.made.append(LockClient(given.pop("table_name", "locks"), **given))
        return self.made[-1]


@pytest.fixture
def near(clock: ManualClock) -> Iterator[Near]:
    near = Near(clock)
    yield near
    for client in near.made:
        client.close()


@pytest.fixture
def store_events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What clients would log of their store; not logged."""
    seen: list[Event] = []
    monkeypatch.setattr("fairlock.client.connection.log_event", seen.append)
    return seen


@pytest.fixture(scope="module")
def lock_table(aws: LocalAws) -> Iterator[str]:
    """The name of a lock table in the embedded AWS."""
    client: DynamoDBClient = aws.client("dynamodb")
    create_table(client, "client-locks")
    yield "client-locks"
    client.delete_table(TableName="client-locks")
