"""A policy may say which partition keys a principal reaches, by `dynamodb:LeadingKeys`.

AWS: "Represents the first key attribute of a table, in other words, the partition key" (DynamoDB
developer guide, "Specifying conditions: Using condition keys"), for GetItem, Query, PutItem,
UpdateItem, DeleteItem, the batches, and each item of a transaction.

Emulator: has no such key. A policy with `ForAllValues:StringLike` on it lets everything through, as
a key that is absent does.

This: the key holds the partition keys of a request. A Query names one, by an equality in its key
condition. A Scan names none, as on AWS.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ministack.core import iam_actions
from ministack.services import dynamodb

Json = dict[str, Any]

_EQUALITY = re.compile(r"([#\w]+)\s*=\s*(:\w+)")


def apply() -> None:
    """Add the key to what is known of a request."""
    iam_actions.dynamodb_service_context = _with_leading_keys(iam_actions.dynamodb_service_context)


def _with_leading_keys(before: Callable[[bytes], Json]) -> Callable[[bytes], Json]:
    def service_context(body: bytes) -> Json:
        known = before(body)
        keys = list(_leading_keys(json.loads(body or b"{}"))) if known else []
        return {**known, "dynamodb:LeadingKeys": keys} if keys else known

    return service_context


def _leading_keys(request: Json) -> Iterator[str]:
    for item in request.get("TransactItems", ()):
        for operation in item.values():
            yield from _leading_keys(operation)
    for table, operations in request.get("RequestItems", {}).items():
        keys = operations.get("Keys", ()) if isinstance(operations, Mapping) else ()
        puts = () if isinstance(operations, Mapping) else operations
        for each in (*keys, *(inner for put in puts for inner in put.values())):
            stored = each.get("Item") or each.get("Key") or each
            yield from _text(stored.get(_partition_key(table)))
    if "TableName" not in request:
        return
    name = _partition_key(request["TableName"])
    yield from _text((request.get("Item") or request.get("Key") or {}).get(name))
    names = request.get("ExpressionAttributeNames", {})
    for attribute, value in _EQUALITY.findall(request.get("KeyConditionExpression", "")):
        if names.get(attribute, attribute) == name:
            yield from _text(request["ExpressionAttributeValues"].get(value))


def _partition_key(table: str) -> str:
    found = dynamodb._tables.get(table.rpartition("/")[2])
    return str(found["pk_name"]) if found else ""


def _text(value: Json | None) -> Iterator[str]:
    if value:
        yield str(next(iter(value.values())))
