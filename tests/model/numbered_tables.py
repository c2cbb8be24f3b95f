"""Lock tables with numbers, so that a search compares and hashes them fast.

A request is done by the real `LockTable` on a `MemoryTable`, once for each table that it meets.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, cast

from leasehold.dynamodb.lock_table import LockTable
from leasehold.protocol import schema
from leasehold.protocol.items import read_state
from leasehold.protocol.model import LockState
from leasehold.protocol.requests import Put
from tests.model.replay import Call
from tests.support import TABLE
from tests.support.expressions import Item
from tests.support.memory_table import Key, MemoryTable

LOCK: Final = "lock"
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


class SeenLock(NamedTuple):
    """The lock of a table, and the owners in its queue."""

    state: LockState
    waiting: tuple[str, ...]


class NumberedTables:
    """Numbers for tables and answers.

    Args:
        by_arrival: whether tables differ if their waiters are the same, but came in another order.
            `SeenLock.waiting` then is in the order of arrival, and else in that of the queue.
    """

    def __init__(self, *, by_arrival: bool) -> None:
        self._by_arrival = by_arrival
        self._memory = MemoryTable()
        self._lock_table = _LockTable(cast("Any", self._memory), TABLE)
        self._items = Numbered()
        self._numbers_of_items: dict[int, int] = {}
        self._tables = Numbered()
        self._answers = Numbered()
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._locks: dict[int, SeenLock] = {}
        self._number({})

    def items(self, table: int) -> dict[Key, Item]:
        found: dict[Key, Item] = self._tables.values[table]
        return found

    def answer(self, number: int) -> Any:  # noqa: ANN401 - whatever LockTable answers
        return self._answers.values[number]

    def answer_number(self, answer: object) -> int:
        text = described(answer)
        return self._answers.number((type(answer), text), answer)

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

    def lock(self, table: int) -> SeenLock:
        """The lock of a table, read as leasehold reads it."""
        found = self._locks.get(table)
        if found is None:
            items = self.items(table)
            owners = (
                item[schema.OWNER_ID]["S"]
                for (_, sort_key), item in items.items()
                if sort_key.startswith(schema.WAITER_PREFIX)
            )
            state = read_state(items.get((f"LOCK#{LOCK}", "STATE"), {}))
            found = self._locks[table] = SeenLock(state, tuple(owners))
        return found

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


class _LockTable(LockTable):
    def put(self, put: Put) -> bool:
        """A write that only a mutant makes."""
        self._client.put_item(TableName=self._name, Item=put.item)
        return True


def described(value: object) -> str:
    """A text that differs if values differ, also in what their `repr` does not show."""
    return json.dumps(value, sort_keys=True, default=_described)


def _described(value: Any) -> object:  # noqa: ANN401 - what JSON does not know
    if is_dataclass(value):
        return [type(value).__name__, *(getattr(value, field.name) for field in fields(value))]
    return repr(value)
