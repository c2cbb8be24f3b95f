"""Workflows that change one item, alone and at the same time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
import pytest

from fairlock import optimistic
from tests.e2e.deployment import Deployment, Ended, Json
from tests.e2e.together import together

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.service_resource import Table


@dataclass(frozen=True)
class Account:
    """An account of one test's own."""

    deployment: Deployment
    name: str
    table_name: str
    client: DynamoDBClient

    def open(self, balance: int, *, overdraft: int = 0) -> None:
        item = {
            "account": {"S": self.name},
            "balance": {"N": str(balance)},
            "overdraft": {"N": str(overdraft)},
        }
        self.client.put_item(TableName=self.table_name, Item=item)

    def item(self) -> Json:
        found = self.client.get_item(
            TableName=self.table_name, Key={"account": {"S": self.name}}, ConsistentRead=True
        )
        return dict(found.get("Item", {}))

    def balance_and_version(self) -> tuple[str, str | None]:
        item = self.item()
        return item["balance"]["N"], item.get("version", {}).get("N")

    def at_once(self, machine: str, *amounts: int) -> list[Ended]:
        """Runs executions that are inside at the same time."""
        started = [
            self.deployment.start(machine, {"account": self.name, "amount": amount})
            for amount in amounts
        ]
        return [self.deployment.ended(execution) for execution in started]

    def replace(self, **request: object) -> Ended:
        return self.deployment.run("Replace", {"account": self.name, **request})


def new_account(deployment: Deployment) -> Account:
    return Account(
        deployment=deployment,
        name=f"account-{uuid.uuid4()}",
        table_name=deployment.outputs["OptimisticForms"]["AccountsTable"],
        client=deployment.aws.client("dynamodb"),
    )


@pytest.fixture
def account(deployment: Deployment) -> Account:
    return new_account(deployment)


@pytest.mark.parametrize(
    ("machine", "balances"), [("Debit", {"40"}), ("DebitNaive", {"90", "80", "70"})]
)
def test_of_concurrent_debits_none_is_lost_and_control_without_the_condition_some_are(
    account: Account, machine: str, balances: set[str]
) -> None:
    account.open(100)
    ended = account.at_once(machine, 10, 20, 30)
    assert [one.status for one in ended] == ["SUCCEEDED"] * 3
    assert account.balance_and_version()[0] in balances


def test_of_two_debits_that_only_one_can_afford_one_is_refused(account: Account) -> None:
    account.open(50, overdraft=20)
    ended = account.at_once("Debit", 60, 60)
    assert sorted((one.status, one.error) for one in ended) == [
        ("FAILED", "Overdrawn"),
        ("SUCCEEDED", None),
    ]
    assert account.balance_and_version() == ("-10", "1")


DEEPEST = 32
"""Levels of nesting, says the DynamoDB developer guide. The attribute itself is the first."""


def nested(levels: int) -> Json:
    """A value with maps and lists in turns, and a type that is translated at the bottom."""
    value: Json = {"BOOL": True}
    for level in range(levels - 1):
        value = {"L": [value]} if level % 2 else {"M": {"inner": value}}
    return value


EVERY_TYPE: Json = {
    "text": {"S": "ä"},
    "number": {"N": "12345678901234567890"},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "texts": {"SS": ["a", "b"]},
    "numbers": {"NS": ["7"]},
    "list": {"L": [{"BOOL": False}, {"L": []}, {"M": {"Bool": {"NULL": True}}}]},
    "map": {"M": {"empty": {"M": {}}, "one": {"L": [{"S": "x"}]}}},
    "BOOL": {"M": {"SS": {"SS": ["NULL"]}, '"Bool': {"S": '"BOOL":true, "Ss":['}}},
    "deep": nested(DEEPEST),
}


def own_attributes(item: Json) -> Json:
    """Without the key and the version."""
    return {k: v for k, v in item.items() if k not in {"account", "version", "version_id"}}


def test_the_first_write_makes_the_item_and_null_deletes_it(account: Account) -> None:
    made = account.replace(new=EVERY_TYPE)
    assert made.output == account.item()
    assert own_attributes(account.item()) == EVERY_TYPE
    deleted = account.replace(new=None)
    assert (deleted.status, deleted.output, account.item()) == ("SUCCEEDED", None, {})


@together
def test_only_dynamodb_limits_how_deeply_an_item_is_nested(deployment: Deployment) -> None:
    ended = new_account(deployment).replace(new={"deep": nested(DEEPEST + 1)})
    assert (ended.status, ended.error) == ("FAILED", "DynamoDb.ValidationException")
    assert str(ended.cause).startswith("Nesting Levels have exceeded supported limits")


def test_a_task_that_ends_by_itself_has_seen_the_item_and_writes_nothing(account: Account) -> None:
    account.replace(new={"balance": {"N": "1"}, "set": {"SS": ["a"]}, "yes": {"BOOL": True}})
    before = account.item()
    read = account.replace(only_read=True)
    assert read.output == {"input": {"account": account.name, "only_read": True}, "item": before}
    assert account.item() == before
    unused = Account(account.deployment, "unused", account.table_name, account.client)
    assert unused.replace(only_read=True).output["item"] is None


def test_workflows_and_python_share_versions(account: Account) -> None:
    account.open(100)
    account.at_once("Debit", 10)
    seen = account.item()
    key = {"account": account.name}
    written = optimistic.update(
        _table_of(account), key, lambda item: item and {**item, "balance": item["balance"] - 20}
    )
    assert written is not None
    account.at_once("Debit", 30)
    assert account.balance_and_version() == ("40", "3")
    assert account.item()["version_id"] != seen["version_id"]


def _table_of(account: Account) -> Table:
    aws = account.deployment.aws
    resource = boto3.resource(
        "dynamodb",
        aws_access_key_id=aws.access_key,
        aws_secret_access_key="test",
        region_name="us-east-1",
        endpoint_url=aws.endpoint_url,
    )
    return resource.Table(account.table_name)


def test_an_item_whose_version_is_no_number_is_not_written(account: Account) -> None:
    item = {"account": {"S": account.name}, "balance": {"N": "1"}, "version": {"S": "one"}}
    account.client.put_item(TableName=account.table_name, Item=item)
    ended = account.replace(new={"balance": {"N": "2"}})
    assert (ended.status, ended.error) == ("FAILED", "States.QueryEvaluationError")
    assert account.item() == item
