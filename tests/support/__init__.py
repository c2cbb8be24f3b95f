"""What tests of several suites share: a clock that is moved by hand, a table, short requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.clock import AwsClock, Clock
from fairlock.protocol.model import AcquireRequest, HeartbeatRequest, ReleaseRequest
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.store.context import LockContext
from tests.support.operations import Operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LOCK = "nightly-report"
TABLE = "locks"
START_MS = 1_900_000_000_000
OTHER_DYNAMODB: Final = pytest.StashKey[Any]()
"""A DynamoDB client that `make second-engine` runs tests with, instead of theirs."""


@dataclass
class FakeClock:
    """Time that passes only when a test says so. `skew_ms` shifts the wall clock alone."""

    now_ms: int = START_MS
    skew_ms: int = 0
    waits: list[float] = field(default_factory=list)

    def wall_ms(self) -> int:
        return self.now_ms + self.skew_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.advance(seconds)

    def alarm(self) -> FakeAlarm:
        return FakeAlarm(self)

    def advance(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


@dataclass
class FakeAlarm:
    """A wait on a clock that is moved by hand."""

    clock: FakeClock
    rung: bool = False

    def wait(self, seconds: float) -> None:
        if not self.rung:
            self.clock.wait(seconds)
        self.rung = False

    def ring(self) -> None:
        self.rung = True


def create_lock_table(client: DynamoDBClient, name: str = TABLE) -> None:
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": PARTITION_KEY, "AttributeType": "S"},
            {"AttributeName": SORT_KEY, "AttributeType": "S"},
        ],
    )


def moved_clock(clock: Clock) -> AwsClock:
    """AWS's time by a clock that a test moves: of that stand-ins for DynamoDB know nothing."""
    return AwsClock(clock, uses_dates=False)


def store_over(
    client: Any,  # noqa: ANN401 - a DynamoDB client or something that wraps one
    clock: FakeClock,
    *,
    table: str = TABLE,
    **seams: Any,  # noqa: ANN401 - a context's fields
) -> Operations:
    """A store without jitter, which meets no workflows unless `seams` names some."""
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    context = LockContext(
        table=LockTable(client, table, retry_budget=retry_budget, aws_clock=moved_clock(clock)),
        retry_budget=retry_budget,
        random=lambda: 0.5,
    )
    return Operations(replace(context, **seams))


def owner(name: str) -> str:
    """An owner id that keeps the rules: `owner("anna")` is anna and twelve dashes or more."""
    return f"{name:->16}"


def acquire(name: str, **fields: Any) -> AcquireRequest:  # noqa: ANN401 - fields of the request
    return AcquireRequest(
        **{"lock_name": LOCK, "owner_id": owner(name), "owner_name": name, **fields}
    )


def heartbeat(name: str, **fields: Any) -> HeartbeatRequest:  # noqa: ANN401 - same
    return HeartbeatRequest(**{"lock_name": LOCK, "owner_id": owner(name), **fields})


def release(name: str, **fields: Any) -> ReleaseRequest:  # noqa: ANN401 - same
    fields = {"waits": "ticket" in fields, **fields}
    return ReleaseRequest(**{"lock_name": LOCK, "owner_id": owner(name), **fields})
