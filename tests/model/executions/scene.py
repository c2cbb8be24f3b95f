"""A search over the ends of executions: its actors, what may happen to them, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.schema import ENTERED_AT_MS
from fairlock.testing.interpreter import Item
from tests.model.executions.actors import STOPPABLE, Actor, Workflow
from tests.model.executions.state import Operation
from tests.model.numbered_tables import Numbered, NumberedTables
from tests.model.replay import Call, RecordedWorld, run_to_next_call
from tests.model.request_names import Names
from tests.support import START_MS


class Invariant(StrEnum):
    """What the reaper and keep_alive guarantee."""

    LIMIT = "never more holders than one, and all are counted"
    HARMED = "a workflow that was granted the lock since its last redrive, and works, holds it"
    SPARED = "the reaper evicts no owner alive, and none that was granted the lock since a redrive"
    SKIPPED = "the reaper hands no lock to the dead"
    FREE = "in the end no one dead or done holds the lock or waits for it"
    WAKE_UP = "in the end no one living waits, unless its push was lost: then it holds the lock"
    FALSE_LOSS = "no one is told that its lock is lost, if it is not"
    SILENT = "one more heartbeat tells that the lock was lost, or takes it again"
    ENDS = "a guard ends when its work has ended"


ALL: Final = frozenset(Invariant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Actors, and how often each thing may happen to them.

    Attributes:
        name: a sentence.
        stops: how often the stoppable execution is stopped, at any time.
        redrives: how often it is redriven.
        epochs: how often all leases run out.
        kills: how many functions are killed after a request.
        hangs: how many calls are given up by their workflow, and go on.
        copies: how many writes are given up after a time-out, and land at any time later.
        outdated: how many answers of Step Functions call an execution running that was stopped.
        arrived: names of workflows that asked for the lock before the search begins, in order.
        stopped_in_calls: whether the execution may be stopped while a call of it is under way.
        invariants: what is checked.
    """

    name: str
    actors: tuple[Actor, ...]
    arrived: tuple[str, ...] = ()
    stopped_in_calls: bool = True
    stops: int = 0
    redrives: int = 0
    epochs: int = 0
    kills: int = 0
    hangs: int = 0
    copies: int = 0
    outdated: int = 0
    invariants: frozenset[StrEnum] = ALL


_CALLS_MS: Final = 100
"""Between the first calls of two workflows; their places are in this order."""


class Calls:
    """Numbers for calls under way, and the tables that their requests go to.

    The code runs once for each history of a call.
    """

    def __init__(self, actors: tuple[Actor, ...], names: Names) -> None:
        self.tables = NumberedTables(by_arrival=False)
        self._actors = actors
        self._names = names
        self._numbers = Numbered()
        self._next: dict[int, object] = {}
        self._further: dict[tuple[int, int, int], int] = {}

    def number(self, at: int, call: Operation) -> int:
        """The number of a call; what it asks next is then known, or what it returns."""
        number = self._numbers.number((at, call), call)
        if number not in self._next:
            answers = [self.tables.answer(answer) for answer in call.answers]
            actor = self._actors[at]
            place = actor.place if isinstance(actor, Workflow) else 0
            first_ms = place * _CALLS_MS
            claim: Item = {ENTERED_AT_MS: schema.number(START_MS + first_ms)}
            self._next[number] = run_to_next_call(
                lambda store, world: actor.operate(call, store, world),
                RecordedWorld(
                    answers, call.instants, first_ms + call.number, self._names, STOPPABLE, claim
                ),
            )
        return number

    def answered(self, at: int, call: int, answer: int, epoch: int) -> int:
        """The number of a call that has had one answer more."""
        key = (call, answer, epoch)
        if key not in self._further:
            before = self.operation(call)
            answers, instants = (*before.answers, answer), (*before.instants, epoch)
            after = before._replace(answers=answers, instants=instants)
            self._further[key] = self.number(at, after)
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

    def request_names(self) -> frozenset[str]:
        """Of all requests that were made."""
        return frozenset(call.name for call in self._next.values() if isinstance(call, Call))
