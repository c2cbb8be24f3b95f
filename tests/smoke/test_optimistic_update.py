"""Case 5: `OptimisticUpdate` with all that an item may have in it."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest

from tests.e2e.deployment import Ended
from tests.e2e.optimistic.test_updates import DEEPEST, EVERY_TYPE, nested
from tests.e2e.optimistic.test_updates import Account as Item
from tests.smoke.account import UPDATES, Account

BYTES = base64.b64encode(b"\x00\xff").decode()
LARGE = 120_000
"""Twice this, the input and the item, is just below the 256 KiB of a payload."""
TOO_LARGE = 200_000


@pytest.fixture
def item(account: Account) -> Item:
    return Item(
        deployment=account.workflows,
        name=f"smoke-{uuid.uuid4()}",
        table_name=account.output("AccountsTable", stack=UPDATES),
        client=account.client("dynamodb"),
    )


def without_version(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if not name.startswith("version")}


def test_every_type_of_attribute_is_written_and_read_unchanged(item: Item) -> None:
    """Decides whether Step Functions spells attribute types as assumed, 32 levels deep."""
    assert set(EVERY_TYPE["deep"]) == set(nested(DEEPEST))
    every_type = {**EVERY_TYPE, "bytes": {"B": BYTES}, "many_bytes": {"BS": [BYTES]}}
    made = item.replace(new=every_type)
    assert made.status == "SUCCEEDED", made
    stored = {
        "account": {"S": item.name},
        **EVERY_TYPE,
        "bytes": {"B": base64.b64decode(BYTES)},
        "many_bytes": {"BS": [base64.b64decode(BYTES)]},
    }
    assert without_version(item.item()) == stored
    read = item.replace(only_read=True)
    assert without_version(read.output["item"]) == {"account": {"S": item.name}, **every_type}
    deleted = item.replace(new=None)
    assert (deleted.status, item.item()) == ("SUCCEEDED", {})


def test_an_item_of_almost_128_kib_is_replaced(account: Account, item: Item) -> None:
    """Decides whether JSONata translates an item of 120,000 characters within its time limit."""
    for letter in "xy":
        replaced = item.replace(new={"text": {"S": letter * LARGE}})
        assert replaced.status == "SUCCEEDED", replaced.error
    assert item.item()["text"] == {"S": "y" * LARGE}
    account.needs_aws("it does not enforce the size of payloads")
    assert item.replace(new={"text": {"S": "z" * TOO_LARGE}}).error == "States.DataLimitExceeded"
    assert item.item()["text"] == {"S": "y" * LARGE}


def test_of_concurrent_updates_none_is_lost_and_a_last_try_is_a_conflict(item: Item) -> None:
    """Decides whether a cancelled transaction is told by the name that is caught and repeated."""
    item.open(100)
    assert [each.status for each in item.at_once("Debit", 10, 20, 30)] == ["SUCCEEDED"] * 3
    assert item.balance_and_version() == ("40", "3")
    once: list[Ended] = item.at_once("DebitOnce", 1, 2)
    assert sorted(str(each.error) for each in once) == ["None", "VersionConflict"]
    assert item.balance_and_version()[1] == "4"
