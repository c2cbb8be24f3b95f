"""A bench on the embedded DynamoDB, which is atomic and knows request tokens, as no mock does."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.errors import LockLost
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.model import Grant, LockState
from fairlock.store.context import LockContext
from testbed.localaws import LocalAws
from tests.support import (
    LOCK,
    TABLE,
    FakeClock,
    Operations,
    acquire,
    create_lock_table,
    heartbeat,
    release,
    store_bench,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


# A lock table, a ledger of the application, and holders that write to it.

LEDGER = "ledger"


class Bench(store_bench.Bench):
    """The store's bench on an engine that is atomic, and a ledger beside its lock table.

    Attributes:
        inner: the engine itself; `client` may be something in front of it, which can fail.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.inner: DynamoDBClient = self.client

    @functools.cached_property
    def context(self) -> LockContext:
        return self.store().context

    @functools.cached_property
    def operations(self) -> Operations:
        return Operations(self.context)

    def through(self, client: Any) -> Bench:  # noqa: ANN401 - whatever wraps a client
        """The same world, seen through another client."""
        other = Bench(client, self.clock, workflows=self.workflows)
        other.inner = self.inner
        return other

    def granted(self, name: str, **fields: Any) -> Grant:  # noqa: ANN401 - fields of the request
        answer = self.operations.acquire(acquire(name, **fields))
        assert isinstance(answer, Grant), answer
        return answer

    def waits(self, name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the request
        """Puts another caller into the queue."""
        request = acquire(name, waits=True, **{"task_token": name, **fields})
        answer = self.operations.acquire(request)
        assert not isinstance(answer, Grant), answer
        self.clock.advance(0.001)

    def heartbeat(self, name: str) -> object:
        return self.operations.heartbeat(heartbeat(name))

    def release(self, name: str) -> object:
        return self.operations.release(release(name))

    def writes(self, grant: Grant) -> GuardedWrites:
        return GuardedWrites(
            self.client,
            table_name=TABLE,
            lock_name=grant.lock_name,
            owner_id=grant.owner_id,
            fencing_token=grant.fencing_token,
            context=self.context,
        )

    def state(self) -> LockState:
        return self.store(self.inner).read_state(LOCK)

    def balance(self, account: str) -> int | None:
        found = self.inner.get_item(
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
