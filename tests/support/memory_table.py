"""A DynamoDB table in memory, for property tests: moto takes 20 ms a write, this 0.1 ms.

Single-threaded, one table. The same state machine also runs over moto's DynamoDB, so that this one
cannot be wrong unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tests.support.expressions import (
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
    """The condition of at least one write was false."""


class _Exceptions:
    ConditionalCheckFailedException = ConditionalCheckFailedException
    TransactionCanceledException = TransactionCanceledException


@dataclass
class MemoryTable:
    """The calls of a boto3 client that the lock protocol makes.

    Attributes:
        items: by their keys.
        page_size: how many items a query looks at; DynamoDB's pages end after 1 MB.
        tokens: request tokens of transactions that happened: a repeat changes nothing.
    """

    items: dict[Key, Item] = field(default_factory=dict)
    page_size: int = 1_000
    tokens: set[str] = field(default_factory=set)
    exceptions: type[_Exceptions] = _Exceptions

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        old = self.items.get(_key(request))
        if not self._holds(request):
            raise _condition_failed(old)
        new = self._update(request)
        shown = {"ALL_NEW": new, "ALL_OLD": old or {}}
        return {"Attributes": dict(shown[request["ReturnValues"]])}

    def get_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        item = self.items.get(_key(request))
        return {} if item is None else {"Item": dict(item)}

    def delete_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        if not self._holds(request):
            raise _condition_failed(self.items.get(_key(request)))
        self.items.pop(_key(request), None)
        return {}

    def transact_write_items(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        token = request.get("ClientRequestToken", "")
        if token in self.tokens:
            return {}
        writes = [next(iter(write.items())) for write in request["TransactItems"]]
        reasons: list[dict[str, Any]] = [
            {"Code": "None"} if self._holds(write) else self._failed(write) for _, write in writes
        ]
        if any(reason["Code"] != "None" for reason in reasons):
            raise _cancelled(reasons)
        for kind, write in writes:
            if kind == "Update":
                self._update(write)
            elif kind == "Put":
                self.items[_key(write)] = dict(write["Item"])
            else:
                self.items.pop(_key(write), None)
        if token:
            self.tokens.add(token)
        return {}

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        values = request["ExpressionAttributeValues"]
        partition, low = values[":pk"]["S"], values.get(":prefix", {"S": ""})["S"]
        is_range = "BETWEEN" in request["KeyConditionExpression"]
        high = values[":me"]["S"] if is_range else low + "\uffff"
        start = request.get("ExclusiveStartKey")
        after = ("", "") if start is None else _key({"Key": start})
        found = [
            item
            for (pk, sk), item in sorted(self.items.items())
            if pk == partition and low <= sk <= high and (pk, sk) > after
        ]
        page = found[: min(request.get("Limit", self.page_size), self.page_size)]
        shown = [dict(item) for item in page if self._passes(request, item)]
        answer: dict[str, Any] = {"Items": shown, "Count": len(shown)}
        if len(found) > len(page):
            answer["LastEvaluatedKey"] = {name: page[-1][name] for name in ("pk", "sk")}
        return answer

    def scan(self, **_request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        return {"Items": [dict(item) for _, item in sorted(self.items.items())]}

    def _passes(self, request: dict[str, Any], item: Item) -> bool:
        only = request.get("FilterExpression")
        return only is None or parse_condition(only)(_scope(request, item))

    def _holds(self, request: dict[str, Any]) -> bool:
        if "ConditionExpression" not in request:
            return True
        _check_placeholders(request)
        item = self.items.get(_key(request), {})
        return parse_condition(request["ConditionExpression"])(_scope(request, item))

    def _update(self, request: dict[str, Any]) -> Item:
        scope = _scope(request, self.items.get(_key(request), {}))
        new = {**request["Key"], **changed(scope, parse_changes(request["UpdateExpression"]))}
        self.items[_key(request)] = new
        return new

    def _failed(self, write: dict[str, Any]) -> dict[str, Any]:
        item = self.items.get(_key(write))
        wanted = write.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and item is not None
        return {"Code": "ConditionalCheckFailed", **({"Item": item} if wanted else {})}


def _scope(request: dict[str, Any], item: Item) -> Scope:
    return Scope(
        item=item,
        names=request["ExpressionAttributeNames"],
        values=request.get("ExpressionAttributeValues", {}),
    )


def _key(request: dict[str, Any]) -> Key:
    key = request["Key"] if "Key" in request else request["Item"]
    return key["pk"]["S"], key["sk"]["S"]


def _condition_failed(item: Item | None) -> ConditionalCheckFailedException:
    response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}
    if item is not None:
        response["Item"] = dict(item)
    return ConditionalCheckFailedException(response, "UpdateItem")


def _cancelled(reasons: list[dict[str, Any]]) -> TransactionCanceledException:
    response: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": "no"},
        "CancellationReasons": reasons,
    }
    return TransactionCanceledException(response, "TransactWriteItems")


def _check_placeholders(request: dict[str, Any]) -> None:
    """DynamoDB refuses placeholders that are declared and not used, or used and not declared."""
    text = f"{request.get('UpdateExpression', '')} {request['ConditionExpression']}"
    used = set(_PLACEHOLDER.findall(text))
    names = request["ExpressionAttributeNames"]
    values = request.get("ExpressionAttributeValues", {})
    if used != set(names) | set(values):
        message = f"unused or undeclared: {used ^ (set(names) | set(values))}"
        raise InvalidExpression(message)
