"""Lock tables with numbers, so that a search compares and hashes them fast.

A request is done by the real `LockTable` on a `MemoryTable`, once for each table that it meets.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, cast

from fairlock.aws.lock_table import LockTable
from fairlock.protocol import schema
from fairlock.protocol.items import read_state, read_waiter
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
        self._shown: dict[int, int] = {}
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._locks: dict[int, LockOfTable] = {}
        self._number({})

    def items(self, table: int) -> dict[Key, Item]:
        found: dict[Key, Item] = self._tables.values[table]
        return found

    def answer(self, number: int) -> Any:  # noqa: ANN401 - whatever LockTable answers
        return self._answers.values[number]

    def answer_number(self, answer: object) -> int:
        return self._answers.number((type(answer), described(answer)), answer)

    def apply(self, table: int, call: Call) -> Outcome:
        """Does a request, which happens at once or not at all.

        The call must live as long as this object, which remembers it by its identity.
        """
        key = (table, id(call))
        found = self._outcomes.get(key)
        if found is None:
            self._memory.items = dict(self.items(table))
            answer = getattr(self._lock_table, call.method)(call.payload)
            after = self._number(self._memory.items)
            found = self._outcomes[key] = Outcome(after, self.answer_number(answer))
        return found

    def hide(self, table: int, item: Item) -> int:
        """The number of the table in which queries do not see this item yet."""
        items = dict(self.items(table))
        key = (item[schema.PARTITION_KEY]["S"], item[schema.SORT_KEY]["S"])
        items[key] = {**items[key], _LATE: {"BOOL": True}}
        return self._number(items)

    def show_late(self, table: int) -> int:
        """The number of the table in which queries see every item."""
        found = self._shown.get(table)
        if found is None:
            items = self.items(table).items()
            shown = {key: _without_mark(item) if _LATE in item else item for key, item in items}
            found = self._shown[table] = self._number(shown)
        return found

    def lock(self, table: int) -> LockOfTable:
        """The lock of a table, read as fairlock reads it."""
        found = self._locks.get(table)
        if found is None:
            items = self.items(table)
            places = [
                read_waiter(LOCK, item)
                for (_, sort_key), item in items.items()
                if sort_key.startswith(schema.WAITER_PREFIX)
            ]
            state = read_state(items.get((f"LOCK#{LOCK}", "STATE"), {}))
            owners = tuple(place.owner_id for place in places)
            by_owner = {place.owner_id: place for place in places}
            found = self._locks[table] = LockOfTable(state, owners, by_owner)
        return found

    def seen(self, table: int) -> SeenLock:
        """The lock of a table and its oldest waiters, as a holder remembers them."""
        waiters = [
            read_waiter(LOCK, item)
            for (_, sort_key), item in sorted(self.items(table).items())
            if sort_key.startswith(schema.WAITER_PREFIX)
        ]
        return SeenLock(state=self.lock(table).state, waiters=tuple(waiters))

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
    return {name: value for name, value in item.items() if name != _LATE}


def described(value: object) -> str:
    """A text that differs if values differ, also in what their `repr` does not show."""
    return json.dumps(value, sort_keys=True, default=_described)


def _described(value: Any) -> object:  # noqa: ANN401 - what JSON does not know
    if is_dataclass(value):
        # Not when it was given: the world that the answer is shown to tells that.
        shown = [field.name for field in fields(value) if field.compare]
        return [type(value).__name__, *(getattr(value, name) for name in shown)]
    return repr(value)
