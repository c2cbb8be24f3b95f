"""How far calls of the service are, numbered, and what the real code asks next."""

from __future__ import annotations

from leasehold.dynamodb.lock_table import LockTable
from tests.model.executions.actors import DOOMED, Member, Operation
from tests.model.items import Items, Outcome
from tests.model.replay import Call, run_to_next_call
from tests.model.request_names import Names
from tests.model.table import Numbered


class Calls:
    """Numbers for calls under way, and a table that their requests go to.

    The code runs once for each history of a call; each request is done once on each table.
    """

    def __init__(self, cast: tuple[Member, ...], names: Names) -> None:
        self.items = Items()
        self._cast = cast
        self._names = names
        self._numbers = Numbered()
        self._next: dict[int, object] = {}
        self._further: dict[tuple[int, int, int], int] = {}
        self._outcomes: dict[tuple[int, int], Outcome] = {}

    def number(self, who: int, call: Operation) -> int:
        """The number of a call; what it asks next is then known, or what it returns."""
        number = self._numbers.number((who, call), call)
        if number not in self._next:
            self._next[number] = run_to_next_call(
                lambda store, world: self._cast[who].operate(call, store, world),
                [self.items.answer(answer) for answer in call.answers],
                call.epochs,
                offset_ms=call.number,
                names=self._names,
                claims_of=DOOMED,
            )
        return number

    def answered(self, who: int, call: int, answer: int, epoch: int) -> int:
        """The number of a call that has had one answer more."""
        key = (call, answer, epoch)
        if key not in self._further:
            before = self.operation(call)
            answers, epochs = (*before.answers, answer), (*before.epochs, epoch)
            after = before._replace(answers=answers, epochs=epochs)
            self._further[key] = self.number(who, after)
        return self._further[key]

    def operation(self, call: int) -> Operation:
        operation: Operation = self._numbers.values[call]
        return operation

    def request_of(self, call: int) -> Call:
        """The next request of a call under way."""
        request = self._next[call]
        assert isinstance(request, Call)
        return request

    def result_of(self, call: int) -> object:
        """What a call returns; None if it has another request."""
        outcome = self._next[call]
        return None if isinstance(outcome, Call) else outcome

    def names(self) -> frozenset[str]:
        """Of all requests that were made."""
        return frozenset(call.name for call in self._next.values() if isinstance(call, Call))

    def done(self, table: int, asked: Call) -> Outcome:
        """Does a request to the table."""
        key = (table, id(asked))
        found = self._outcomes.get(key)
        if found is None:
            counts = asked.method == LockTable.count.__name__
            found = self._outcomes[key] = self.items.apply(table, asked.payload, counts=counts)
        return found
