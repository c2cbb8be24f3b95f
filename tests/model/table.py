"""A lock's items in memory, numbered: a table is two numbers, and what a request does is looked up.

One number stands for the lock's state item, one for the queue, which is the waiter items in the
order in which they came (an item that is replaced keeps its place).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from leasehold.dynamodb.lock_table import Cancelled, ConditionFailed, Written
from leasehold.protocol import schema
from leasehold.protocol.items import read_state
from leasehold.protocol.model import LockState
from leasehold.protocol.requests import Delete, Put, Query, Transaction, Update
from tests.model.expressions import Attributes, changed, holds

Request = Update | Transaction | Put | Delete | Query | Mapping[str, Any]


class Numbered:
    """Gives equal values equal numbers, so that states are compared and hashed fast."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, key: object, value: object) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.values)
            self.values.append(value)
        return found


class Outcome(NamedTuple):
    """The table after a request, and the number of the answer."""

    state: int
    queue: int
    answer: int


class Table:
    """Does requests on numbered tables. Number 0 is the empty state and the empty queue."""

    def __init__(self) -> None:
        self._states = Numbered()
        self._waiters = Numbered()
        self._queues = Numbered()
        self._answers = Numbered()
        self.state_number({})
        self._queues.number((), ())

    def state_number(self, item: Attributes) -> int:
        return self._states.number(json.dumps(item, sort_keys=True), item)

    def state(self, number: int) -> Attributes:
        item: Attributes = self._states.values[number]
        return item

    def queue(self, number: int) -> list[Attributes]:
        """The waiter items, in the order in which they came."""
        return [self._waiters.values[waiter] for waiter in self._queues.values[number]]

    def answer(self, number: int) -> Any:  # noqa: ANN401 - whatever LockTable answers
        return self._answers.values[number]

    def answer_number(self, answer: object) -> int:
        return self._answers.number(repr(answer), answer)

    def apply(self, state: int, queue: int, request: Request, *, counts: bool = False) -> Outcome:
        """Does one request, which happens at once or not at all."""
        match request:
            case Update():
                return self._update(state, queue, request)
            case Transaction():
                return self._transact(state, queue, request)
            case Put() | Delete():
                after = self._queue_after(queue, request)
                kept = queue if after is None else after
                return Outcome(state, kept, self.answer_number(after is not None))
            case Query():
                items = self._range(queue, request)
                return Outcome(state, queue, self.answer_number(len(items) if counts else items))
            case _:  # The key of the lock, to be read.
                return Outcome(state, queue, self.answer_number(self.state(state)))

    def _update(self, state: int, queue: int, update: Update) -> Outcome:
        item = self.state(state)
        if not holds(update, item):
            failed = ConditionFailed(item)
            return Outcome(state, queue, self._answers.number(("failed", state), failed))
        after = self.state_number(changed(update, item))
        shown = after if update.returns == "ALL_NEW" else state
        written = Written(self.state(shown))
        return Outcome(after, queue, self._answers.number(("written", shown), written))

    def _transact(self, state: int, queue: int, transaction: Transaction) -> Outcome:
        item = self.state(state)
        if not holds(transaction.state, item):
            failed = Cancelled(item)
            return Outcome(state, queue, self._answers.number(("cancelled", state), failed))
        queue_after = self._queue_after(queue, transaction.other)
        if queue_after is None:
            return Outcome(state, queue, self.answer_number(Cancelled(None)))
        state_after = self.state_number(changed(transaction.state, item))
        return Outcome(state_after, queue_after, self.answer_number(Written({})))

    def _queue_after(self, queue: int, write: Put | Delete) -> int | None:
        """The queue after a write to a waiter; None if its condition does not hold."""
        waiters: dict[str, int] = {
            self._waiters.values[waiter][schema.SORT_KEY]["S"]: waiter
            for waiter in self._queues.values[queue]
        }
        if isinstance(write, Put):
            item: Any = write.item
            key = item[schema.SORT_KEY]["S"]
            waiters[key] = self._waiters.number(json.dumps(item, sort_keys=True), item)
        else:
            key = write.key[schema.SORT_KEY]["S"]
            there = self._waiters.values[waiters[key]] if key in waiters else {}
            if not holds(write, there):
                return None
            del waiters[key]
        after = tuple(waiters.values())
        return self._queues.number(after, after)

    def _range(self, queue: int, query: Query) -> list[Attributes]:
        upper = query.values[":me"]["S"] if ":me" in query.values else schema.WAITER_PREFIX + "~"
        keyed = [(item[schema.SORT_KEY]["S"], item) for item in self.queue(queue)]
        keyed.sort(key=lambda pair: pair[0])
        found = [item for key, item in keyed if key <= upper][: query.most]
        only: str | None = getattr(query, "only", None)
        return [item for item in found if only is None or holds(query, item, condition=only)]


class LockReader:
    """Reads numbered items as leasehold reads them, each once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._locks: dict[int, LockState] = {}
        self._waiting: dict[int, list[str]] = {}

    def lock(self, number: int) -> LockState:
        """The lock that a state item tells of."""
        if number not in self._locks:
            self._locks[number] = read_state(self._table.state(number))
        return self._locks[number]

    def owners_waiting(self, number: int) -> list[str]:
        """Owners of the waiter items, in the order in which these came."""
        if number not in self._waiting:
            items = self._table.queue(number)
            self._waiting[number] = [item[schema.OWNER_ID]["S"] for item in items]
        return self._waiting[number]
