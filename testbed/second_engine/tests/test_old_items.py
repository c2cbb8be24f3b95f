"""The client of DynamoDB Local answers a failed condition with the item that failed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from testbed.second_engine.dynamodb_local import OldItemsAdded

ITEM = {"pk": {"S": "a"}, "held": {"N": "1"}}
UPDATE = {
    "TableName": "locks",
    "Key": {"pk": {"S": "a"}},
    "UpdateExpression": "SET #h = :one",
    "ConditionExpression": "#h < :one",
    "ExpressionAttributeNames": {"#h": "held"},
    "ExpressionAttributeValues": {":one": {"N": "1"}, ":unused": {"N": "2"}},
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}


class CancelledError(ClientError):
    pass


def failure(code: str, **more: Any) -> dict[str, Any]:
    return {"Error": {"Code": code, "Message": ""}, **more}


@dataclass
class DynamoDBOf2020:
    """Fails the first updates. `holds_again`: whether the condition holds when it is checked."""

    holds_again: list[bool]
    checks: list[Any] = field(default_factory=list)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(TransactionCanceledException=CancelledError)
    )

    def update_item(self, **_update: Any) -> Any:
        if len(self.checks) < len(self.holds_again):
            answer: Any = failure("ConditionalCheckFailedException")
            raise ClientError(answer, "UpdateItem")
        return {"Attributes": {}}

    def transact_write_items(self, *, TransactItems: list[Any]) -> None:  # noqa: N803 - boto3's name
        [check] = TransactItems
        self.checks.append(check["ConditionCheck"])
        if not self.holds_again[len(self.checks) - 1]:
            reasons = [{"Code": "ConditionalCheckFailed", "Item": ITEM}]
            answer: Any = failure("TransactionCanceledException", CancellationReasons=reasons)
            raise CancelledError(answer, "TransactWriteItems")


def test_a_failed_condition_tells_the_item() -> None:
    client = DynamoDBOf2020(holds_again=[False])
    with pytest.raises(ClientError) as refused:
        OldItemsAdded(client).update_item(**UPDATE)
    assert refused.value.response["Item"] == ITEM  # type: ignore[typeddict-item]  # not in the stubs
    assert client.checks[0]["ConditionExpression"] == "#h < :one"
    assert client.checks[0]["ExpressionAttributeValues"] == {":one": {"N": "1"}}


def test_a_condition_that_holds_by_then_is_sent_again() -> None:
    client = DynamoDBOf2020(holds_again=[True, True])
    assert OldItemsAdded(client).update_item(**UPDATE) == {"Attributes": {}}
    assert len(client.checks) == 2


def test_the_control_an_old_dynamodb_tells_no_item() -> None:
    with pytest.raises(ClientError) as refused:
        DynamoDBOf2020(holds_again=[False]).update_item(**UPDATE)
    assert "Item" not in refused.value.response
