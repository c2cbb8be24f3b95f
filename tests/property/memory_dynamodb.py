"""A DynamoDB table in memory, for property tests: moto takes 20 ms a write, this 0.1 ms.

Single-threaded, one table. The same state machine also runs over moto's DynamoDB, so that this one
cannot be wrong unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tests.property.expressions import (
    InvalidExpression,
    Item,
    Scope,
    changed,
    parse_changes,
    parse_condition,
)

Key = tuple[str, str]
_PLACEHOLDER = re.compile(r"[#:]\w+")


class ConditionalCheckFailedException(ClientError):  # noqa: N818 - boto3's name
    """The condition of a write was false."""


class TransactionCanceledException(ClientError):  # noqa: N818 - boto3's name
    """Never raised here: transactions are not part of what is tested over this table."""


class _Exceptions:
    ConditionalCheckFailedException = ConditionalCheckFailedException
    TransactionCanceledException = TransactionCanceledException


@dataclass
class MemoryDynamoDB:
    """The calls of a boto3 client that the lock protocol makes when nobody waits."""

    items: dict[Key, Item] = field(default_factory=dict)
    exceptions: type[_Exceptions] = _Exceptions

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        key = _key(request)
        old = self.items.get(key)
        scope = Scope(
            item=old or {},
            names=request["ExpressionAttributeNames"],
            values=request["ExpressionAttributeValues"],
        )
        _check_placeholders(request)
        if not parse_condition(request["ConditionExpression"])(scope):
            raise _condition_failed(old)
        new = {**request["Key"], **changed(scope, parse_changes(request["UpdateExpression"]))}
        self.items[key] = new
        shown = {"ALL_NEW": new, "ALL_OLD": old or {}}
        return {"Attributes": dict(shown[request["ReturnValues"]])}

    def get_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        item = self.items.get(_key(request))
        return {} if item is None else {"Item": dict(item)}

    def delete_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        self.items.pop(_key(request), None)
        return {}

    def query(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """Nobody ever waits here."""
        return {"Items": [], "Count": 0}


def _key(request: dict[str, Any]) -> Key:
    key = request["Key"]
    return key["pk"]["S"], key["sk"]["S"]


def _condition_failed(item: Item | None) -> ConditionalCheckFailedException:
    response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}
    if item is not None:
        response["Item"] = dict(item)
    return ConditionalCheckFailedException(response, "UpdateItem")


def _check_placeholders(request: dict[str, Any]) -> None:
    """DynamoDB refuses placeholders that are declared and not used, or used and not declared."""
    used = set(
        _PLACEHOLDER.findall(f"{request['UpdateExpression']} {request['ConditionExpression']}")
    )
    names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
    if used != set(names) | set(values):
        message = f"unused or undeclared: {used ^ (set(names) | set(values))}"
        raise InvalidExpression(message)
