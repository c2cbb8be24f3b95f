"""Lock tables with numbers, so that a search compares and hashes them fast.

A request is done by the real `LockTable` on a `MemoryTable`, once for each table that it meets.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, NamedTuple, cast

from fairlock.aws.lock_table import LockTable
from fairlock.protocol import schema
from fairlock.protocol.items import is_waiter, read_state, read_waiter
from fairlock.protocol.model import LockState, SeenLock, Waiter
from fairlock.protocol.table_requests import Put
from fairlock.testing.fake_table import Key, MemoryTable
from fairlock.testing.interpreter import Item
from tests.model.replay import Call
from tests.support import TABLE

LOCK: Final = "lock"
_LATE: Final = "late"
EMPTY: Final = 0
"""Number of the table without items."""


class Numbered:
    """Gives equal values equal numbers."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, value: object) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


class Outcome(NamedTuple):
    """The number of the table after a request, and that of the answer."""

    table: int
    answer: int


class LockOfTable(NamedTuple):
    """The lock of a table, the owners in its queue, and the place of each."""

    state: LockState
    waiting: tuple[str, ...]
    places: dict[str, Waiter]

    def order_of(self, owner_id: str) -> tuple[int, str]:
        """What waiters are served in the order of."""
        return self.places[owner_id].entered_at_ms, owner_id


class NumberedTables:
    """Numbers for tables and answers.

    Args:
        by_arrival: whether tables differ if their waiters are the same, but came in another order.
            `LockOfTable.waiting` then is in the order of arrival, and else in that of the queue.
    """

    def __init__(self, *, by_arrival: bool) -> None:
        self._by_arrival = by_arrival
        self._memory = _TableOfLateItems()
        self._lock_table = _LockTable(cast("Any", self._memory), TABLE)
        self._items = Numbered()
        self._numbers_of_items: dict[int, int] = {}
        self._tables = Numbered()
        self._answers = Numbered()
        self.apply, self.lock = cache(self._apply), cache(self._lock)
        self.show_late = cache(self._show_late)
        self._number({})

    def items(self, table: int) -> dict[Key, Item]:
        found: dict[Key, Item] = self._tables.values[table]
        return found

    def answer(self, number: int) -> Any:  # noqa: ANN401 - whatever LockTable answers
        return self._answers.values[number]

    def answer_number(self, answer: object) -> int:
        return self._answers.number((type(answer), described(answer)), answer)

    def _apply(self, table: int, call: Call) -> Outcome:
        """Does a request, which happens at once or not at all."""
        self._memory.items = dict(self.items(table))
        answer = getattr(self._lock_table, call.method)(call.payload)
        return Outcome(self._number(self._memory.items), self.answer_number(answer))

    def hide(self, table: int, item: Item) -> int:
        """The number of the table in which queries do not see this item yet."""
        items = dict(self.items(table))
        key = (item[schema.PARTITION_KEY]["S"], item[schema.SORT_KEY]["S"])
        items[key] = {**items[key], _LATE: {"BOOL": True}}
        return self._number(items)

    def _show_late(self, table: int) -> int:
        """The number of the table in which queries see every item."""
        return self._number({key: _without_mark(item) for key, item in self.items(table).items()})

    def _lock(self, table: int) -> LockOfTable:
        """The lock of a table, read as fairlock reads it."""
        items = self.items(table)
        waiters = [read_waiter(LOCK, item) for item in items.values() if is_waiter(item)]
        state = read_state(items.get((f"LOCK#{LOCK}", "STATE"), {}))
        owners = tuple(waiter.owner_id for waiter in waiters)
        return LockOfTable(state, owners, dict(zip(owners, waiters, strict=True)))

    def seen(self, table: int) -> SeenLock:
        """The lock of a table and its oldest waiters, as a holder remembers them."""
        in_order = [item for _, item in sorted(self.items(table).items()) if is_waiter(item)]
        waiters = tuple(read_waiter(LOCK, item) for item in in_order)
        return SeenLock(state=self.lock(table).state, waiters=waiters)

    def _number(self, items: dict[Key, Item]) -> int:
        keys = list(items) if self._by_arrival else sorted(items)
        numbers = tuple(self._number_of_item(items[key]) for key in keys)
        return self._tables.number(
            numbers, {key: self._items.values[n] for key, n in zip(keys, numbers, strict=True)}
        )

    def _number_of_item(self, item: Item) -> int:
        """The number of an item. An item that has one is known by its identity, without reading."""
        found = self._numbers_of_items.get(id(item))
        if found is None:
            found = self._items.number(json.dumps(item, sort_keys=True), item)
            self._numbers_of_items[id(self._items.values[found])] = found
        return found


class _TableOfLateItems(MemoryTable):
    """A table with items that queries do not see yet: DynamoDB may show a transaction in part."""

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """As DynamoDB answers: each item as it was committed, not all of one moment."""
        items = {key: item for key, item in self.items.items() if _LATE not in item}
        return MemoryTable(items).query(**request)


class _LockTable(LockTable):
    def put(self, put: Put) -> bool:
        """A write that only a mutant makes."""
        self._client.put_item(TableName=self._name, Item=put.item)
        return True


def _without_mark(item: Item) -> Item:
    """The same item if it has no mark: `_number_of_item` knows it by its identity."""
    return {n: value for n, value in item.items() if n != _LATE} if _LATE in item else item


def described(value: object) -> str:
    """A text that differs if values differ, also in what their `repr` does not show."""
    return json.dumps(value, sort_keys=True, default=_described)


def _described(value: Any) -> object:  # noqa: ANN401 - what JSON does not know
    if is_dataclass(value):
        # Not when it was given: the world that the answer is shown to tells that.
        shown = [field.name for field in fields(value) if field.compare]
        return [type(value).__name__, *(getattr(value, name) for name in shown)]
    return repr(value)
