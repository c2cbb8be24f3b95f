"""A whole table in memory, numbered: locks, waiters and claims, each item under its key.

`table.py` knows the items of one lock and is faster; this one knows what the reaper asks, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from leasehold.dynamodb.lock_table import Cancelled, ConditionFailed, Written
from leasehold.protocol import schema
from leasehold.protocol.requests import Delete, Item, Put, Query, Transaction, Update
from tests.model.expressions import Attributes, changed, holds
from tests.model.table import Numbered

Key = tuple[str, str]
Request = Update | Transaction | Delete | Query | Mapping[str, Any]


class Outcome(NamedTuple):
    """The table after a request, and the number of the answer."""

    table: int
    answer: int


class Items:
    """Does requests on numbered tables. Number 0 is the empty one."""

    def __init__(self) -> None:
        self._tables = Numbered()
        self._answers = Numbered()
        self._number({})

    def all(self, table: int) -> dict[Key, Attributes]:
        found: dict[Key, Attributes] = self._tables.values[table]
        return found

    def answer(self, number: int) -> Any:  # noqa: ANN401 - whatever LockTable answers
        return self._answers.values[number]

    def answer_number(self, answer: object) -> int:
        return self._answers.number(repr(answer), answer)

    def apply(self, table: int, request: Request, *, counts: bool = False) -> Outcome:
        """Does one request, which happens at once or not at all."""
        items = self.all(table)
        match request:
            case Update():
                return self._update(table, items, request)
            case Transaction():
                return self._transact(table, items, request)
            case Delete():
                done = holds(request, items.get(_key(request.key), {}))
                after = self._number(_without(items, _key(request.key))) if done else table
                return Outcome(after, self.answer_number(done))
            case Query():
                found = _range(items, request)
                return Outcome(table, self.answer_number(len(found) if counts else found))
            case _:
                return Outcome(table, self.answer_number(items.get(_key(request), {})))

    def _update(self, table: int, items: dict[Key, Attributes], update: Update) -> Outcome:
        key = _key(update.key)
        before = items.get(key, {})
        if not holds(update, before):
            return Outcome(table, self.answer_number(ConditionFailed(before)))
        after = changed(update, before)
        shown = after if update.returns == "ALL_NEW" else before
        return Outcome(self._number({**items, key: after}), self.answer_number(Written(shown)))

    def _transact(self, table: int, items: dict[Key, Attributes], both: Transaction) -> Outcome:
        key, other = _key(both.state.key), both.other
        if not holds(both.state, items.get(key, {})):
            return Outcome(table, self.answer_number(Cancelled(items.get(key, {}))))
        other_key = _key(other.item if isinstance(other, Put) else other.key)
        there = items.get(other_key, {})
        if other.condition is not None and not holds(other, there, condition=other.condition):
            return Outcome(table, self.answer_number(Cancelled(None)))
        after = {**items, key: changed(both.state, items.get(key, {}))}
        if isinstance(other, Put):
            item: Any = other.item
            after[other_key] = item
        else:
            del after[other_key]
        return Outcome(self._number(after), self.answer_number(Written({})))

    def _number(self, items: dict[Key, Attributes]) -> int:
        ordered = dict(sorted(items.items()))
        text = json.dumps([*ordered.values()], sort_keys=True)
        return self._tables.number(text, ordered)


def _range(items: dict[Key, Attributes], query: Query) -> list[Attributes]:
    partition, low = query.values[":pk"]["S"], query.values.get(":prefix", {"S": ""})["S"]
    high = query.values[":me"]["S"] if "BETWEEN" in query.condition else low + "~"
    found = [item for (pk, sk), item in items.items() if pk == partition and low <= sk <= high]
    found = found[: query.most]
    return [i for i in found if query.only is None or holds(query, i, condition=query.only)]


def _key(key: Item) -> Key:
    return key[schema.PARTITION_KEY]["S"], key[schema.SORT_KEY]["S"]


def _without(items: dict[Key, Attributes], key: Key) -> dict[Key, Attributes]:
    return {k: item for k, item in items.items() if k != key}
