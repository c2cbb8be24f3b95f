"""Lock tables in memory that say what a write costs, and what DynamoDB's stream tells of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlock.protocol.model import AcquireRequest
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support.faulty_table import WRITES, writes_of

WRITE_UNIT_BYTES = 1024
_ARN = "arn:aws:states:us-east-1:123456789012:execution:Billing-MachineD1A2B3C4-x1y2z3:"


def guard_request(number: int, limit: int, *, waits: bool = False) -> AcquireRequest:
    """What the guard of an execution asks for, with names as long as they usually are."""
    arn = f"{_ARN}{uuid.UUID(int=(number + 1) << 90)}"
    return AcquireRequest(
        lock_name="customer/1234",
        owner_id=str(uuid.UUID(int=(number + 1) << 91)),
        owner_name=arn,
        execution_arn=arn,
        limit=limit,
        waits=waits,
        task_token="t" * 1000 if waits else None,
    )


def item_bytes(item: Mapping[str, Any]) -> int:
    """The size that DynamoDB charges for, by its developer guide ("Item sizes")."""
    return sum(_utf8(name) + _value_bytes(value) for name, value in item.items())


def _utf8(text: str) -> int:
    return len(text.encode())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _utf8(content)
        case "N":
            # One byte for two significant digits, and one more.
            return (len(content.strip("-0.")) + 1) // 2 + 1
        case "BOOL":
            return 1
        case "M":
            return 3 + sum(1 + _utf8(name) + _value_bytes(part) for name, part in content.items())
    raise AssertionError(kind)


@dataclass
class MeteredTable:
    """Passes requests on to a table in memory and adds up the write units that they consume.

    A write is charged by the larger of the item before and after it, even if its condition fails;
    in a transaction twice.
    """

    inner: MemoryTable = field(default_factory=MemoryTable)
    write_units: int = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        return (lambda **request: self._write(attribute, request)) if name in WRITES else attribute

    def _write(self, send: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401 - a method
        writes, times = writes_of(request), 2 if "TransactItems" in request else 1
        before = [self._bytes(write) for write in writes]
        try:
            return send(**request)
        finally:
            after = [self._bytes(write) for write in writes]
            for sizes in zip(before, after, strict=True):
                self.write_units += times * max(1, -(-max(sizes) // WRITE_UNIT_BYTES))

    def _bytes(self, write: Mapping[str, Any]) -> int:
        key = write["Key"] if "Key" in write else write["Item"]
        return item_bytes(self.inner.items.get((key["pk"]["S"], key["sk"]["S"]), {}))


@dataclass
class StreamedTable:
    """Passes requests on to a table in memory, and keeps what the stream tells of their writes.

    Attributes:
        records: as a Lambda function gets them, one for each changed item, in order.
    """

    clock: ManualClock
    inner: MemoryTable = field(default_factory=MemoryTable)
    records: list[dict[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        return (lambda **request: self._write(attribute, request)) if name in WRITES else attribute

    def take(self) -> list[dict[str, Any]]:
        """The records since the last call."""
        taken, self.records = self.records, []
        return taken

    def _write(self, send: Any, request: dict[str, Any]) -> Any:  # noqa: ANN401 - a method
        before = dict(self.inner.items)
        try:
            return send(**request)
        finally:
            for key in [*before, *(key for key in self.inner.items if key not in before)]:
                old, new = before.get(key), self.inner.items.get(key)
                if old is not new:
                    self._tell(key, old, new)

    def _tell(self, key: tuple[str, str], old: Any, new: Any) -> None:  # noqa: ANN401 - items
        images = {"OldImage": old, "NewImage": new}
        self.records.append(
            {
                "eventID": f"{len(self.records):032x}",
                "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
                "dynamodb": {
                    # The stream tells whole seconds.
                    "ApproximateCreationDateTime": self.clock.wall_ms() // 1000,
                    "Keys": {"pk": {"S": key[0]}, "sk": {"S": key[1]}},
                    **{name: dict(item) for name, item in images.items() if item is not None},
                },
            }
        )
