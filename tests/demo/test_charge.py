"""The demo's task loses updates when two run at once; that is what makes it worth guarding."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo.task.charge import CardDeclined, charge

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE = "accounts"


@pytest.fixture
def accounts(dynamodb: "DynamoDBClient") -> "DynamoDBClient":
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account_id", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=TABLE, Item=row("1000", "opening"))
    return dynamodb


def row(balance: str, last_change: str) -> dict[str, Any]:
    return {
        "account_id": {"S": "alice"},
        "balance": {"N": balance},
        "last_change": {"S": last_change},
    }


def stored(dynamodb: "DynamoDBClient") -> dict[str, Any]:
    key = {"account_id": {"S": "alice"}}
    return dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]


def event(charge_id: str, amount: int, **more: object) -> dict[str, Any]:
    return {
        "charge_id": charge_id,
        "account_id": "alice",
        "amount": amount,
        "work_seconds": 0,
    } | more


def test_a_charge_says_what_it_read_and_wrote(accounts: "DynamoDBClient") -> None:
    answer = charge(event("a-1", 30, fencing_token=1_700_000_000_000_001), accounts, TABLE)
    times = [answer.pop(name) for name in ("started_at_ms", "read_at_ms", "written_at_ms")]
    assert times == sorted(times)
    assert answer == {
        "charge_id": "a-1",
        "account_id": "alice",
        "amount": 30,
        "fencing_token": 1_700_000_000_000_001,
        "balance_read": 1000,
        "change_read": "opening",
        "balance_written": 970,
    }
    assert stored(accounts) == row("970", "a-1")


def test_a_charge_in_the_middle_of_another_is_lost(
    accounts: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_charge_meanwhile(_seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", lambda _seconds: None)
        charge(event("a-2", 50), accounts, TABLE)

    monkeypatch.setattr(time, "sleep", another_charge_meanwhile)
    charge(event("a-1", 30), accounts, TABLE)
    assert stored(accounts) == row("970", "a-1")


def test_charges_one_after_the_other_are_both_kept(accounts: "DynamoDBClient") -> None:
    charge(event("a-1", 30), accounts, TABLE)
    charge(event("a-2", 50), accounts, TABLE)
    assert stored(accounts) == row("920", "a-2")


def test_a_declined_charge_leaves_the_balance(accounts: "DynamoDBClient") -> None:
    with pytest.raises(CardDeclined):
        charge(event("a-1", 30, fail=True), accounts, TABLE)
    assert stored(accounts) == row("1000", "opening")
