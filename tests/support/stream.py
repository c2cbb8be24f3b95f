"""A lock table in memory whose writes are told as DynamoDB's stream tells them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock

_WRITES = ("update_item", "put_item", "delete_item", "transact_write_items")


@dataclass
class StreamedTable:
    """Passes requests on; the records are those that a Lambda function gets.

    Attributes:
        records: one for each item that a write has changed, in order.
    """

    clock: FakeClock
    inner: MemoryTable = field(default_factory=MemoryTable)
    records: list[dict[str, Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        return (lambda **request: self._write(attribute, request)) if name in _WRITES else attribute

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
