"""A lock table, a ledger of the application, and holders that write to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlock.aws.executions import NoWorkflows, WorkflowEngine
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockLost
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.items import read_state
from fairlock.protocol.model import AcquireRequest, Grant, LockState
from fairlock.protocol.schema import WAITER_PREFIX, lock_key, partition_of
from fairlock.store.context import LockContext
from tests.support import LOCK, TABLE, FakeClock, acquire, heartbeat, moved_clock, release
from tests.support.operations import Operations

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

LEDGER = "ledger"


@dataclass
class Bench:
    """Everything of one test: `client` may be one that fails or counts, `inner` is the real one."""

    client: Any
    clock: FakeClock
    inner: DynamoDBClient
    workflows: WorkflowEngine = field(default_factory=NoWorkflows)

    @functools.cached_property
    def context(self) -> LockContext:
        retry_budget = RetryBudget(clock=self.clock, random=lambda: 0.5)
        aws_clock = moved_clock(self.clock)
        table = LockTable(self.client, TABLE, retry_budget=retry_budget, aws_clock=aws_clock)
        return LockContext(table=table, retry_budget=retry_budget, workflows=self.workflows)

    @functools.cached_property
    def store(self) -> Operations:
        return Operations(self.context)

    def through(self, client: Any) -> Bench:  # noqa: ANN401 - whatever wraps a client
        """The same world, seen through another client."""
        return Bench(client, self.clock, self.inner, self.workflows)

    def granted(self, name: str, **fields: Any) -> Grant:  # noqa: ANN401 - fields of the request
        answer = self.store.acquire(acquire(name, **fields))
        assert isinstance(answer, Grant), answer
        return answer

    def waits(self, name: str, **fields: Any) -> AcquireRequest:  # noqa: ANN401 - fields of the request
        """Puts another caller into the queue."""
        request = acquire(name, waits=True, **{"task_token": name, **fields})
        answer = self.store.acquire(request)
        assert not isinstance(answer, Grant), answer
        self.clock.advance(0.001)
        return request

    def heartbeat(self, name: str) -> object:
        return self.store.heartbeat(heartbeat(name))

    def release(self, name: str) -> object:
        return self.store.release(release(name))

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
        found = self.inner.get_item(TableName=TABLE, Key=lock_key(LOCK), ConsistentRead=True)
        return read_state(found.get("Item", {}))

    def holders(self) -> list[str]:
        return [holder.owner_name for holder in self.state().holders]

    def waiters(self) -> list[str]:
        found = self.inner.query(
            TableName=TABLE,
            KeyConditionExpression="pk = :lock AND begins_with(sk, :waiter)",
            ExpressionAttributeValues={
                ":lock": {"S": partition_of(LOCK)},
                ":waiter": {"S": WAITER_PREFIX},
            },
            ConsistentRead=True,
        )
        return [item["owner_name"]["S"] for item in found["Items"]]

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
