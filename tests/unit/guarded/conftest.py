"""An embedded DynamoDB: it is atomic and knows request tokens, as an in-process mock does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from testbed.localaws import LocalAws
from tests.support import TABLE, FakeClock, create_lock_table
from tests.unit.guarded.bench import LEDGER, Bench, create_ledger

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="session")
def client(aws: LocalAws) -> DynamoDBClient:
    client: DynamoDBClient = aws.client("dynamodb", max_pool_connections=32)
    return client


_TESTS = itertools.count()


@pytest.fixture
def clock() -> FakeClock:
    """Each test begins a moment later, so that no grant and no request token comes twice."""
    clock = FakeClock()
    clock.advance(0.001 * next(_TESTS))
    return clock


@pytest.fixture
def dynamodb(client: DynamoDBClient) -> Iterator[DynamoDBClient]:
    create_lock_table(client)
    create_ledger(client)
    yield client
    client.delete_table(TableName=TABLE)
    client.delete_table(TableName=LEDGER)


@pytest.fixture
def bench(dynamodb: DynamoDBClient, clock: FakeClock) -> Bench:
    return Bench(dynamodb, clock)
