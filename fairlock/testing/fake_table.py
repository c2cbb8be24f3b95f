"""`FakeTable`: a lock table in memory for tests, which counts requests and can fail.

It serves one table, and one request at a time. `tests/model/test_memory_table.py` compares it with
moto's DynamoDB, request by request.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from fairlock.clock import Clock, SystemClock
from fairlock.errors import ClientUnusable
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.testing.interpreter import (
    InvalidExpression,
    Item,
    Scope,
    changed,
    holds,
    placeholders,
)

Key = tuple[str, str]


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

    An item is never changed: a write puts another in its place.

    Attributes:
        items: by their keys; an item that is replaced stays in its place.
        page_size: how many items a query reads; DynamoDB's pages end after 1 MB.
        tokens: request tokens of transactions that happened: a repeat changes nothing.
    """

    items: dict[Key, Item] = field(default_factory=dict)
    page_size: int = 1_000
    tokens: set[str] = field(default_factory=set)
    exceptions: type[_Exceptions] = _Exceptions
    meta: ClassVar = SimpleNamespace(region_name="us-east-1")

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """One conditional update."""
        old = self.items.get(_key(request))
        self._require(request)
        self._write("Update", request)
        new = self.items[_key(request)]
        shown = {"ALL_NEW": new, "UPDATED_OLD": _updated(old or {}, new), "ALL_OLD": old or {}}
        return {"Attributes": dict(shown.get(request.get("ReturnValues", "NONE"), {}))}

    def put_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """One conditional put."""
        self._require(request)
        self._write("Put", request)
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """One conditional delete."""
        self._require(request)
        self._write("Delete", request)
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """One item."""
        item = self.items.get(_key(request))
        return {} if item is None else {"Item": dict(item)}

    def transact_write_items(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """All writes, or none if the condition of one is false."""
        token = request.get("ClientRequestToken", "")
        if token in self.tokens:
            return {}
        writes = [next(iter(write.items())) for write in request["TransactItems"]]
        reasons = [self._reason(write) for _, write in writes]
        if any(reason["Code"] != "None" for reason in reasons):
            response: Any = {
                "Error": {"Code": "TransactionCanceledException", "Message": "no"},
                "CancellationReasons": reasons,
            }
            raise TransactionCanceledException(response, "TransactWriteItems")
        for kind, write in writes:
            self._write(kind, write)
        if token:
            self.tokens.add(token)
        return {}

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """The items of one partition within a range of sort keys, page by page."""
        values = request["ExpressionAttributeValues"]
        partition, low = values[":pk"]["S"], values.get(":prefix", {"S": ""})["S"]
        is_range = "BETWEEN" in request["KeyConditionExpression"]
        high = values[":me"]["S"] if is_range else low + "\uffff"
        found = [
            item
            for (pk, sk), item in sorted(self.items.items())
            if pk == partition and low <= sk <= high
        ]
        return self._page(request, found)

    def scan(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """Partitions in the order of their keys, which DynamoDB does not promise."""
        return self._page(request, [item for _, item in sorted(self.items.items())])

    def _page(self, request: Mapping[str, Any], items: Sequence[Item]) -> dict[str, Any]:
        start = request.get("ExclusiveStartKey")
        found = [i for i in items if not start or _key({"Item": i}) > _key({"Key": start})]
        page = found[: min(request.get("Limit", self.page_size), self.page_size)]
        only = request.get("FilterExpression")
        wanted = [item for item in page if not only or holds(only, _scope(request, item))]
        shown = [_projected(request, item) for item in wanted]
        answer: dict[str, Any] = {"Items": shown, "Count": len(shown)}
        if len(found) > len(page):
            answer["LastEvaluatedKey"] = {n: page[-1][n] for n in (PARTITION_KEY, SORT_KEY)}
        return answer

    def state(self, lock_name: str) -> Item:
        """The item of a lock; empty if there is none."""
        return self.items.get((f"LOCK#{lock_name}", "STATE"), {})

    def waiters(self, lock_name: str) -> list[Item]:
        """The items of the waiters of a lock, the oldest first."""
        return [
            item
            for (pk, sk), item in sorted(self.items.items())
            if pk == f"LOCK#{lock_name}" and sk.startswith("WAITER#")
        ]

    def _holds(self, write: Mapping[str, Any]) -> bool:
        if "ConditionExpression" not in write:
            return True
        _check_placeholders(write)
        return holds(write["ConditionExpression"], _scope(write, self.items.get(_key(write), {})))

    def _require(self, write: Mapping[str, Any]) -> None:
        if self._holds(write):
            return
        response: Any = {"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}
        if item := self.items.get(_key(write)):
            response["Item"] = dict(item)
        raise ConditionalCheckFailedException(response, "UpdateItem")

    def _reason(self, write: Mapping[str, Any]) -> dict[str, Any]:
        if self._holds(write):
            return {"Code": "None"}
        item = self.items.get(_key(write))
        wanted = write.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and item is not None
        return {"Code": "ConditionalCheckFailed", **({"Item": item} if wanted else {})}

    def _write(self, kind: str, write: Mapping[str, Any]) -> None:
        key = _key(write)
        match kind:
            case "Update":
                scope = _scope(write, self.items.get(key, {}))
                self.items[key] = {**write["Key"], **changed(write["UpdateExpression"], scope)}
            case "Put":
                self.items[key] = dict(write["Item"])
            case "Delete":
                self.items.pop(key, None)


def _scope(request: Mapping[str, Any], item: Item) -> Scope:
    names = request.get("ExpressionAttributeNames", {})
    return Scope(item, names, request.get("ExpressionAttributeValues", {}))


def _projected(request: Mapping[str, Any], item: Item) -> Item:
    if "ProjectionExpression" not in request:
        return dict(item)
    names = request["ExpressionAttributeNames"]
    wanted = {names[name] for name in request["ProjectionExpression"].split(", ")}
    return {name: value for name, value in item.items() if name in wanted}


def _key(request: Mapping[str, Any]) -> Key:
    key = request["Key"] if "Key" in request else request["Item"]
    return key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]


def _updated(old: Item, new: Item) -> Item:
    """The attributes that an update has set, as they were before."""
    return {n: value for n, value in old.items() if n in new and value is not new[n]}


def _check_placeholders(request: Mapping[str, Any]) -> None:
    """DynamoDB refuses placeholders that are declared and not used, or used and not declared."""
    used = placeholders(request.get("UpdateExpression", ""), request["ConditionExpression"])
    names = request.get("ExpressionAttributeNames", {})
    declared = {*names, *request.get("ExpressionAttributeValues", {})}
    if used != declared:
        raise InvalidExpression(f"unused or undeclared: {used ^ declared}")


if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
else:
    DynamoDBClient = object  # For type checkers it is one: so a `LockClient` takes it.

_OPERATIONS: Final = frozenset(
    ["update_item", "put_item", "delete_item", "transact_write_items", "get_item", "query", "scan"]
)
_ATTRIBUTES: Final = ("is_down", "loses_replies", "requests", "clock", "meta")
_ENDPOINT: Final = "https://dynamodb.us-east-1.amazonaws.com"
_LOCKS_ONLY: Final = (
    "the fake lock table has locks only, and this transaction writes other items: use the fixture "
    "fairlock_table, where moto replaces all of DynamoDB"
)

_ENVIRONMENT: Final = "AWS_EXECUTION_ENV"
_LAMBDA: Final = "AWS_Lambda_"
"""How Lambda's own runtimes begin it. Tests set the function's name at most."""


class FakeTable(DynamoDBClient):
    """Replaces boto3's DynamoDB client. Any number of clients and threads may share one.

    Attributes:
        requests: the names of the requests that reached the table, such as "update_item".
        is_down: whether requests fail before they reach the table, as in an outage.
        loses_replies: whether requests are done, and their replies get lost.
        clock: tells the Date of the answers; fake clients give the table theirs.

    Raises:
        ClientUnusable: this runs in Lambda itself, where it would exclude no other environment.
    """

    def __init__(self) -> None:
        if os.environ.get(_ENVIRONMENT, "").startswith(_LAMBDA):
            message = (
                "fairlock.testing is for tests: its locks exclude no one outside of this process; "
                "use LockClient in a deployed function"
            )
            raise ClientUnusable(message)
        self.requests: list[str] = []
        self.is_down = False
        self.loses_replies = False
        self.clock: Clock = SystemClock()
        self.meta: Any = SimpleNamespace(region_name="us-east-1")
        self._memory = MemoryTable()
        self._one_at_a_time = threading.Lock()

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses a misspelled attribute, with which a test would pass that tests nothing."""
        is_known = name in _ATTRIBUTES or name in _OPERATIONS or name.startswith("_")
        if not is_known and type(self) is FakeTable:
            raise AttributeError(f"FakeTable has no {name!r}; it has {', '.join(_ATTRIBUTES)}")
        super().__setattr__(name, value)

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - as boto3 has it
        """The classes of errors, as boto3's clients have them."""
        return self._memory.exceptions

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        """The operations of DynamoDB that clients of locks use."""
        if name not in _OPERATIONS:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return lambda **request: self._send(name, request)

    def _send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if self.is_down:
            raise ConnectTimeoutError(endpoint_url=_ENDPOINT)
        _require_locks_only(request)
        with self._one_at_a_time:
            self.requests.append(name)
            try:
                return dated(lambda: getattr(self._memory, name)(**request), self.clock.wall_ms())
            finally:
                if self.loses_replies:
                    raise ReadTimeoutError(endpoint_url=_ENDPOINT)


def dated(answer: Callable[[], dict[str, Any]], now_ms: int) -> dict[str, Any]:
    """An answer, or a refusal, with the Date that DynamoDB sends."""
    date = formatdate(now_ms // 1000, usegmt=True)
    meta: Any = {"HTTPHeaders": {"date": date, "x-amzn-requestid": "fake"}}
    try:
        return {**answer(), "ResponseMetadata": meta}
    except ClientError as refused:
        refused.response["ResponseMetadata"] = meta
        raise


def _require_locks_only(request: Mapping[str, Any]) -> None:
    for write in request.get("TransactItems", ()):
        [fields] = write.values()
        if not {PARTITION_KEY, SORT_KEY} <= set(fields.get("Key") or fields.get("Item", {})):
            raise NotImplementedError(_LOCKS_ONLY)
