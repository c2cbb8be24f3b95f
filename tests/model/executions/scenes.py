"""The searches over the ends of executions: their actors, what happens to them, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fairlock.protocol import schema
from fairlock.protocol.schema import ENTERED_AT_MS
from fairlock.testing.interpreter import Item
from tests.model.executions.actors import (
    STOPPABLE,
    Actor,
    ForcedRelease,
    Heartbeats,
    Operation,
    ReapPass,
    Workflow,
)
from tests.model.numbered_tables import Numbered, NumberedTables
from tests.model.replay import Call, Names, RecordedWorld, run_to_next_call
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
        stops: how often the stoppable execution is stopped, at any time.
        redrives: how often it is redriven.
        epochs: how often all leases run out.
        kills: how many functions are killed after a request.
        hangs: how many calls are given up by their workflow, and go on.
        copies: how many writes are given up after a time-out, and land at any time later.
        outdated: how many answers of Step Functions call an execution running that was stopped.
        arrived: names of workflows that asked for the lock before the search begins, in order.
        stopped_in_calls: whether the execution may be stopped while a call of it is under way.
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
        return frozenset(call.name for call in self._next.values() if isinstance(call, Call))


ANNA: Final = Workflow(name="anna", place=0, stoppable=True)
ZITA: Final = Workflow(name="zita", place=1, stoppable=True)
"""Claims come in the order of their names: hers after that of Anna, who may hold the lock."""
BEN: Final = Workflow(name="ben", place=2)
RENEWING: Final = Workflow(name="anna", place=0, stoppable=True, keep_alive=True)
FAILING: Final = Workflow(name="anna", place=0, stoppable=True, keep_alive=True, may_fail=True)
FIRST: Final = ReapPass(name="first pass")
SECOND: Final = ReapPass(name="second pass", second=True, after=FIRST.name)
TOLD: Final = ReapPass(name="first pass that asks no one", sure=True)
TOLD_AGAIN: Final = ReapPass(
    name="second pass that asks no one", second=True, sure=True, after=TOLD.name
)
TOLD_OF_LATER_RUN: Final = ReapPass(
    name="pass of the second run", redrives=1, second=True, sure=True
)
_FIRST_AGAIN: Final = ReapPass(name="first pass, delivered twice")
_SECOND_AGAIN: Final = ReapPass(name="second pass, delivered twice", second=True, after=SECOND.name)
LAST: Final = ReapPass(name="last pass", second=True)
"""A second pass without a first, which frees all the same, in fewer states."""
FORGED: Final = ReapPass(name="forged first pass", forged=True)
FORGED_LATER: Final = ReapPass(name="forged pass of a later run", redrives=7, forged=True)
FORGED_SECOND: Final = ReapPass(name="forged second pass", second=True, forged=True)

_WITH_CALLS_UNDER_WAY: Final = ALL - {Invariant.SKIPPED}
"""An acquire that is under way may join the queue after the reaper has been there."""
_AFTER_A_LOSS: Final = ALL - {Invariant.SKIPPED, Invariant.FALSE_LOSS, Invariant.HARMED}

REDRIVEN_IN_THAT_MOMENT: Final = Scene(
    name="an execution is redriven between the question whether it is over and its eviction",
    actors=(ANNA, Workflow(name="ben", place=1)),
    arrived=("ben", "anna"),
    stops=1,
    redrives=1,
    stopped_in_calls=False,
    invariants=frozenset({Invariant.HARMED}),
)
REAPING: Final = (
    Scene(
        name="an acquire is under way when its execution is stopped",
        actors=(ANNA, BEN, FIRST, SECOND),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="one iteration of a Map holds and another waits, before another execution",
        actors=(ANNA, ZITA, BEN, FIRST, SECOND),
        arrived=("anna", "zita", "ben"),
        stops=1,
        stopped_in_calls=False,
    ),
    Scene(
        name="one iteration of a Map holds and another is on its way into the queue",
        actors=(ANNA, ZITA, FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="functions are killed, the reaper among them",
        actors=(ANNA, BEN, FIRST, SECOND),
        arrived=("anna", "ben"),
        stops=1,
        kills=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="the event is delivered twice, at any time",
        actors=(ANNA, FIRST, SECOND, _FIRST_AGAIN),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="the second pass is delivered twice, with a waiter behind",
        actors=(ANNA, BEN, FIRST, SECOND, _SECOND_AGAIN),
        arrived=("anna", "ben"),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an execution is redriven while its acquire is still under way",
        actors=(ANNA, FIRST, SECOND),
        stops=1,
        redrives=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an execution is redriven that waits behind another",
        actors=(ANNA, BEN, FIRST, SECOND),
        arrived=("ben", "anna"),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    REDRIVEN_IN_THAT_MOMENT,
    Scene(
        name="passes are forged, at any time, of an execution that works before another",
        actors=(ANNA, BEN, FORGED, FORGED_LATER, FORGED_SECOND),
        arrived=("anna", "ben"),
    ),
    Scene(
        name="a second pass is forged, while an acquire is under way and its execution is stopped",
        actors=(ANNA, BEN, LAST, FORGED_SECOND),
        arrived=("ben",),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="a redriven execution works while a second pass of its first run is forged",
        actors=(ANNA, FIRST, FORGED_SECOND),
        arrived=("anna",),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
    ),
    Scene(
        name="Step Functions says for a moment longer that a stopped execution runs",
        actors=(ANNA, BEN, FIRST, SECOND),
        arrived=("anna", "ben"),
        stops=1,
        outdated=2,
        stopped_in_calls=False,
    ),
)
EVENTS_OF_A_RUN: Final = (
    Scene(
        name="an event tells its run, while an acquire is under way",
        actors=(ANNA, BEN, TOLD, TOLD_AGAIN),
        stops=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an event tells its run, and its execution is redriven while its acquire is under way",
        actors=(ANNA, TOLD, TOLD_AGAIN),
        stops=1,
        redrives=1,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an event tells its run, and its execution is redriven that waits behind another",
        actors=(ANNA, BEN, TOLD, TOLD_AGAIN),
        arrived=("ben", "anna"),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="events of two runs, each of which tells its own",
        actors=(ANNA, TOLD, TOLD_AGAIN, TOLD_OF_LATER_RUN),
        stops=2,
        redrives=1,
        stopped_in_calls=False,
        invariants=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an event tells its run, and its execution is redriven with keep_alive",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=2), TOLD, TOLD_AGAIN),
        arrived=("anna",),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        invariants=_AFTER_A_LOSS,
    ),
)
KEEP_ALIVE: Final = (
    Scene(
        name="the work ends while heartbeats are under way, and another execution waits",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=2), BEN),
    ),
    Scene(
        name="the work fails while heartbeats are under way, and another execution waits",
        actors=(FAILING, Heartbeats(workflow=FAILING, most=2), BEN),
    ),
    Scene(
        name="heartbeats are late and given up, and land after the release",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=3)),
        arrived=("anna",),
        hangs=2,
    ),
    Scene(
        name="functions are killed, release and heartbeat among them",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=2), FIRST, SECOND),
        arrived=("anna",),
        kills=1,
    ),
    Scene(
        name="a release is killed, and then its execution is stopped",
        actors=(RENEWING, FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        kills=1,
    ),
    Scene(
        name="the lock is released by force",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=2), ForcedRelease(workflow=RENEWING)),
        arrived=("anna",),
        invariants=_AFTER_A_LOSS,
    ),
    Scene(
        name="an execution with keep_alive is stopped between heartbeats",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=1), FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        invariants=_AFTER_A_LOSS,
    ),
    Scene(
        name="an execution with keep_alive is redriven, at any point of the two reap passes",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=2), FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        invariants=_AFTER_A_LOSS,
    ),
    Scene(
        name="all events are lost, a contender takes over, and the execution is redriven",
        actors=(RENEWING, Heartbeats(workflow=RENEWING, most=1), BEN),
        arrived=("anna",),
        stops=1,
        redrives=1,
        epochs=1,
        stopped_in_calls=False,
        invariants=frozenset({Invariant.LIMIT, Invariant.SILENT}),
    ),
)
LATE_REDRIVE: Final = Scene(
    name="a late copy, and an execution with keep_alive is redriven",
    actors=(RENEWING, Heartbeats(workflow=RENEWING, most=1), FIRST, SECOND),
    arrived=("anna",),
    stops=1,
    redrives=1,
    copies=1,
    stopped_in_calls=False,
    invariants=ALL - {Invariant.SKIPPED, Invariant.FALSE_LOSS},
)
LATE_COPIES: Final = (
    Scene(
        name="a late copy, and an execution is stopped that holds before another",
        actors=(ANNA, BEN, FIRST, SECOND),
        arrived=("anna", "ben"),
        stops=1,
        copies=1,
        stopped_in_calls=False,
    ),
    LATE_REDRIVE,
)
STALLED_CALL: Final = Scene(
    name="a call stalls until a later call of its acquisition has released",
    actors=(ANNA, BEN),
    hangs=1,
    invariants=frozenset({Invariant.FREE}),
)
"""Between the release and the note in the claim that the work is done, the stalled call finds that
its claim stands. Its grant ends with its lease, and with the execution at the latest."""
SCENES: Final = (*REAPING, *EVENTS_OF_A_RUN, *KEEP_ALIVE, *LATE_COPIES)
KNOWN_GAPS: Final = (STALLED_CALL,)
"""Each search finds something: what the protocol does not do yet, or cannot do."""
