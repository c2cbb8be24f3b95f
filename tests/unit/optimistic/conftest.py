"""A table of accounts on the embedded DynamoDB, which is atomic, as an in-process mock is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import boto3
import pytest

from fairlock import optimistic
from fairlock.aws.retry import RetryBudget
from testbed.localaws import LocalAws
from tests.support.clocks import WrongClock
from tests.support.faulty_table import WRITES, Fault, FaultyTable, meanwhile

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBServiceResource
    from mypy_boto3_dynamodb.service_resource import Table


@pytest.fixture(scope="session")
def resource(aws: LocalAws) -> DynamoDBServiceResource:
    session = boto3.Session(
        aws_access_key_id=aws.access_key, aws_secret_access_key="test", region_name="us-east-1"
    )
    return session.resource("dynamodb", endpoint_url=aws.endpoint_url)


@pytest.fixture
def table(resource: DynamoDBServiceResource) -> Iterator[Table]:
    table = resource.create_table(
        TableName=ACCOUNTS,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account", "AttributeType": "S"}],
    )
    yield table
    table.delete()


@pytest.fixture
def clock() -> WrongClock:
    return WrongClock()


# Accounts, and changes to them.

ACCOUNTS: Final = "accounts"
ANNA: Final = {"account": "anna"}

Item = dict[str, Any]


def plain(item: Any) -> Item | None:  # noqa: ANN401 - an item or None
    """An item without the id of its write, and with whole numbers."""
    if item is None:
        return None
    return {
        name: int(value) if name in {"balance", "version"} else value
        for name, value in item.items()
        if name != "version_id"
    }


def stored(table: Any) -> Item | None:  # noqa: ANN401 - a Table or one of these
    return plain(table.get_item(Key=ANNA, ConsistentRead=True).get("Item"))


def add(amount: int) -> Callable[[Item | None], Item]:
    """A change that shows when it is made twice."""

    def change(item: Item | None) -> Item:
        item = item or {"balance": 0}
        item["balance"] += amount
        return item

    return change


def retry_budget(clock: WrongClock | None = None) -> RetryBudget:
    return RetryBudget(clock=clock or WrongClock(), random=lambda: 0.5)


def change(
    table: Any,  # noqa: ANN401 - a Table
    made: int | Callable[[Any], Any],
    *plan: Fault,
    **options: Any,  # noqa: ANN401 - arguments
) -> Item | None:
    """An update by a change, or of the balance by so much, over a table that fails as planned.

    Its pauses take no time.
    """
    over: Any = FaultyTable(table, *plan) if plan else table
    options = {"retry_budget": retry_budget(), **options}
    return optimistic.update(over, ANNA, add(made) if isinstance(made, int) else made, **options)


def others_write(table: Any, times: int = 1, action: Callable[[], object] | None = None) -> Fault:  # noqa: ANN401 - a Table
    """Just before the first so many writes."""
    act = action or (lambda: change(table, 1))
    return meanwhile(range(1, times + 1), act, of=WRITES)


def is_account(table: Any, balance: int, version: int) -> bool:  # noqa: ANN401 - a Table
    return stored(table) == {"account": "anna", "balance": balance, "version": version}
