"""`FakeTable`: a lock table in memory for tests, which counts requests and can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from email.utils import formatdate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from fairlock.clock import Clock, SystemClock
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.testing.memory_table import MemoryTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
else:
    DynamoDBClient = object  # For type checkers it is one: so a `LockClient` takes it.

_OPERATIONS: Final = frozenset(
    {
        *("update_item", "put_item", "delete_item", "transact_write_items"),
        *("get_item", "query", "scan"),
    }
)
_ENDPOINT: Final = "https://dynamodb.us-east-1.amazonaws.com"
_LOCKS_ONLY: Final = (
    "the fake lock table has locks only, and this transaction writes other items: use the fixture "
    "fairlock_table, where moto stands in for all of DynamoDB"
)


class FakeTable(DynamoDBClient):
    """Stands in for boto3's DynamoDB client. Any number of clients and threads may share one.

    Each request is answered as DynamoDB would answer it, one after the other, at once.

    Attributes:
        requests: the names of the requests that reached the table, such as "update_item".
        is_down: whether requests fail before they reach the table, as in an outage. Clients report
            `LockStoreUnavailable`, and heartbeats fail until the lease is over.
        loses_replies: whether requests are done, and their replies get lost.
        clock: tells the Date of the answers; fake clients give the table theirs.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.is_down = False
        self.loses_replies = False
        self.clock: Clock = SystemClock()
        self.meta: Any = SimpleNamespace(region_name="us-east-1")
        self._memory = MemoryTable()
        self._one_at_a_time = threading.Lock()

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - as boto3 has it
        """The classes of errors, as boto3's clients have them."""
        return self._memory.exceptions

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        """The operations of DynamoDB that clients of locks use."""
        if name not in _OPERATIONS:
            message = f"{type(self).__name__} has no {name!r}"
            raise AttributeError(message)
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
        key = fields.get("Key") or fields.get("Item", {})
        if not {PARTITION_KEY, SORT_KEY} <= set(key):
            raise NotImplementedError(_LOCKS_ONLY)
