"""Fixtures: a table in memory, a clock moved by hand, a client, and the context of Lambda."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fairlock import LockClient
from fairlock.testing import ManualClock
from tests.unit.client.doubles import Table, pytest_pyfunc_call

__all__ = ["Context", "clock", "locks", "pytest_pyfunc_call", "table"]


@dataclass
class Context:
    """What the Lambda runtime hands to a handler beside the event."""

    seconds_left: float

    def get_remaining_time_in_millis(self) -> int:
        return round(self.seconds_left * 1000)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def locks(table: Table, clock: ManualClock) -> Iterator[LockClient]:
    with LockClient(
        "locks",
        client=table,
        clock=clock,
        heartbeat_every=math.inf,
    ) as client:
        yield client
