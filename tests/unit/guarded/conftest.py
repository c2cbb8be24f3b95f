"""A bench on the embedded DynamoDB, which is atomic and knows request tokens, as no mock does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fairlock import Lock, LockClient
from fairlock.errors import LockLost
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.model import Grant
from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.support import LOCK, TABLE, create_lock_table, store_bench
from tests.support.faulty_table import FaultyTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


# A lock table, a ledger of the application, and holders that write to it.

LEDGER = "ledger"


class Bench(store_bench.Bench):
    """The store's bench on an engine that is atomic, and a ledger beside its lock table."""

    def waits(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
        """Puts another caller into the queue."""
        self.queue(name, **{"task_token": name, **fields})
        self.clock.advance(0.001)

    def writes(self, grant: Grant, client: Any = None) -> GuardedWrites:  # noqa: ANN401 - as for `store`
        client = self.over(client)
        return GuardedWrites(
            client,
            table_name=TABLE,
            lock_name=grant.lock_name,
            owner_id=grant.owner_id,
            fencing_token=grant.fencing_token,
            context=self.store(client).context,
        )

    def balance(self, account: str) -> int | None:
        found = self.client.get_item(
            TableName=LEDGER, Key={"account": {"S": account}}, ConsistentRead=True
        )
        return int(found["Item"]["balance"]["N"]) if "Item" in found else None


def deposit(account: str, amount: int = 1) -> TransactWriteItemTypeDef:
    """Adds to a balance, whatever it is: done twice it shows."""
    return {
        "Update": {
            "TableName": LEDGER,
            "Key": {"account": {"S": account}},
            "UpdateExpression": "ADD balance :amount",
            "ExpressionAttributeValues": {":amount": {"N": str(amount)}},
        }
    }


def open_account(account: str, balance: int = 0) -> TransactWriteItemTypeDef:
    """Refused if there is one."""
    return {
        "Put": {
            "TableName": LEDGER,
            "Item": {"account": {"S": account}, "balance": {"N": str(balance)}},
            "ConditionExpression": "attribute_not_exists(account)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def create_ledger(client: DynamoDBClient) -> None:
    client.create_table(
        TableName=LEDGER,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account", "AttributeType": "S"}],
    )


def taken_over_twice(bench: Bench) -> tuple[Grant, Grant, Grant]:
    """Anna's place was taken over by ben, and his by anna again."""
    grants = []
    for name in ("anna", "ben", "anna"):
        grants.append(bench.grant(name, lease_ms=1_000))
        bench.clock.advance(10)
    first, other, last = grants
    return first, other, last


@contextmanager
def locked(bench: Bench, **settings: Any) -> Iterator[tuple[Any, Lock]]:  # noqa: ANN401 - of the client
    """A lock of a client whose requests can fail."""
    client: Any = FaultyTable(bench.client)
    with LockClient(
        TABLE, client=client, clock=bench.clock, heartbeat_every=math.inf, **settings
    ) as locks:
        yield client, locks.acquire(LOCK)


def is_refused(write: Callable[[], None]) -> bool:
    """Whether a guarded write was refused because the lock is gone."""
    try:
        write()
    except LockLost:
        return True
    return False


@pytest.fixture(scope="session")
def client(aws: LocalAws) -> DynamoDBClient:
    client: DynamoDBClient = aws.client("dynamodb", max_pool_connections=32)
    return client


_TESTS = itertools.count()


@pytest.fixture
def clock() -> ManualClock:
    """Each test begins a moment later, so that no grant and no request token comes twice."""
    clock = ManualClock()
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
def bench(dynamodb: DynamoDBClient, clock: ManualClock) -> Bench:
    return Bench(dynamodb, clock)
