"""The searches over the ends of executions: their actors, what happens to them, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from tests.model.executions.actors import (
    ForcedRelease,
    Heartbeats,
    ReapPass,
    Workflow,
)
from tests.model.scene import Fault, Scene


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


@dataclass(frozen=True, slots=True)
class ExecutionScene(Scene):
    """Actors around an execution that ends."""

    invariants: frozenset[StrEnum] = frozenset(Invariant)


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

_MAY_JOIN_LATE: Final = frozenset(Invariant) - {Invariant.SKIPPED}
"""An acquire that is under way may join the queue after the reaper has been there."""
_MAY_BE_LOST: Final = _MAY_JOIN_LATE - {Invariant.FALSE_LOSS, Invariant.HARMED}
_with_calls_under_way = partial(ExecutionScene, invariants=_MAY_JOIN_LATE)
_with_a_loss = partial(ExecutionScene, invariants=_MAY_BE_LOST)

REDRIVEN_IN_THAT_MOMENT: Final = ExecutionScene(
    "an execution is redriven between the question whether it is over and its eviction",
    (ANNA, Workflow(name="ben", place=1)),
    (Fault.STOP_AT_REST, Fault.REDRIVE),
    frozenset({Invariant.HARMED}),
    begin=("ben", "anna"),
)
REAPING: Final = (
    _with_calls_under_way(
        "an acquire is under way when its execution is stopped",
        (ANNA, BEN, FIRST, SECOND),
        (Fault.STOP,),
    ),
    ExecutionScene(
        "one iteration of a Map holds and another waits, before another execution",
        (ANNA, ZITA, BEN, FIRST, SECOND),
        (Fault.STOP_AT_REST,),
        begin=("anna", "zita", "ben"),
    ),
    _with_calls_under_way(
        "one iteration of a Map holds and another is on its way into the queue",
        (ANNA, ZITA, FIRST, SECOND),
        (Fault.STOP,),
        begin=("anna",),
    ),
    _with_calls_under_way(
        "functions are killed, the reaper among them",
        (ANNA, BEN, FIRST, SECOND),
        (Fault.STOP, Fault.KILL),
        begin=("anna", "ben"),
    ),
    _with_calls_under_way(
        "the event is delivered twice, at any time",
        (ANNA, FIRST, SECOND, _FIRST_AGAIN),
        (Fault.STOP,),
    ),
    _with_calls_under_way(
        "the second pass is delivered twice, with a waiter behind",
        (ANNA, BEN, FIRST, SECOND, _SECOND_AGAIN),
        (Fault.STOP,),
        begin=("anna", "ben"),
    ),
    _with_calls_under_way(
        "an execution is redriven while its acquire is still under way",
        (ANNA, FIRST, SECOND),
        (Fault.STOP, Fault.REDRIVE),
    ),
    _with_calls_under_way(
        "an execution is redriven that waits behind another",
        (ANNA, BEN, FIRST, SECOND),
        (Fault.STOP_AT_REST, Fault.REDRIVE),
        begin=("ben", "anna"),
    ),
    REDRIVEN_IN_THAT_MOMENT,
    ExecutionScene(
        "passes are forged, at any time, of an execution that works before another",
        (ANNA, BEN, FORGED, FORGED_LATER, FORGED_SECOND),
        begin=("anna", "ben"),
    ),
    _with_calls_under_way(
        "a second pass is forged, while an acquire is under way and its execution is stopped",
        (ANNA, BEN, LAST, FORGED_SECOND),
        (Fault.STOP,),
        begin=("ben",),
    ),
    ExecutionScene(
        "a redriven execution works while a second pass of its first run is forged",
        (ANNA, FIRST, FORGED_SECOND),
        (Fault.STOP_AT_REST, Fault.REDRIVE),
        begin=("anna",),
    ),
    ExecutionScene(
        "Step Functions says for a moment longer that a stopped execution runs",
        (ANNA, BEN, FIRST, SECOND),
        (Fault.STOP_AT_REST, Fault.OUTDATED, Fault.OUTDATED),
        begin=("anna", "ben"),
    ),
)
EVENTS_OF_A_RUN: Final = (
    _with_calls_under_way(
        "an event tells its run, while an acquire is under way",
        (ANNA, BEN, TOLD, TOLD_AGAIN),
        (Fault.STOP,),
    ),
    _with_calls_under_way(
        "an event tells its run, and its execution is redriven while its acquire is under way",
        (ANNA, TOLD, TOLD_AGAIN),
        (Fault.STOP, Fault.REDRIVE),
    ),
    _with_calls_under_way(
        "an event tells its run, and its execution is redriven that waits behind another",
        (ANNA, BEN, TOLD, TOLD_AGAIN),
        (Fault.STOP_AT_REST, Fault.REDRIVE),
        begin=("ben", "anna"),
    ),
    _with_calls_under_way(
        "events of two runs, each of which tells its own",
        (ANNA, TOLD, TOLD_AGAIN, TOLD_OF_LATER_RUN),
        (Fault.STOP_AT_REST, Fault.STOP_AT_REST, Fault.REDRIVE),
    ),
    _with_a_loss(
        "an event tells its run, and its execution is redriven with keep_alive",
        (RENEWING, Heartbeats(workflow=RENEWING, most=2), TOLD, TOLD_AGAIN),
        (Fault.STOP_AT_REST, Fault.REDRIVE),
        begin=("anna",),
    ),
)
KEEP_ALIVE: Final = (
    ExecutionScene(
        "the work ends while heartbeats are under way, and another execution waits",
        (RENEWING, Heartbeats(workflow=RENEWING, most=2), BEN),
    ),
    ExecutionScene(
        "the work fails while heartbeats are under way, and another execution waits",
        (FAILING, Heartbeats(workflow=FAILING, most=2), BEN),
    ),
    ExecutionScene(
        "heartbeats are late and given up, and land after the release",
        (RENEWING, Heartbeats(workflow=RENEWING, most=3)),
        (Fault.HANG, Fault.HANG),
        begin=("anna",),
    ),
    ExecutionScene(
        "functions are killed, release and heartbeat among them",
        (RENEWING, Heartbeats(workflow=RENEWING, most=2), FIRST, SECOND),
        (Fault.KILL,),
        begin=("anna",),
    ),
    ExecutionScene(
        "a release is killed, and then its execution is stopped",
        (RENEWING, FIRST, SECOND),
        (Fault.STOP, Fault.KILL),
        begin=("anna",),
    ),
    _with_a_loss(
        "the lock is released by force",
        (RENEWING, Heartbeats(workflow=RENEWING, most=2), ForcedRelease(workflow=RENEWING)),
        begin=("anna",),
    ),
    _with_a_loss(
        "an execution with keep_alive is stopped between heartbeats",
        (RENEWING, Heartbeats(workflow=RENEWING, most=1), FIRST, SECOND),
        (Fault.STOP,),
        begin=("anna",),
    ),
    _with_a_loss(
        "an execution with keep_alive is redriven, at any point of the two reap passes",
        (RENEWING, Heartbeats(workflow=RENEWING, most=2), FIRST, SECOND),
        (Fault.STOP_AT_REST, Fault.REDRIVE),
        begin=("anna",),
    ),
    ExecutionScene(
        "all events are lost, a contender takes over, and the execution is redriven",
        (RENEWING, Heartbeats(workflow=RENEWING, most=1), BEN),
        (Fault.STOP_AT_REST, Fault.REDRIVE, Fault.EPOCH),
        frozenset({Invariant.LIMIT, Invariant.SILENT}),
        begin=("anna",),
    ),
)
LATE_REDRIVE: Final = ExecutionScene(
    "a late copy, and an execution with keep_alive is redriven",
    (RENEWING, Heartbeats(workflow=RENEWING, most=1), FIRST, SECOND),
    (Fault.STOP_AT_REST, Fault.REDRIVE, Fault.COPY),
    _MAY_JOIN_LATE - {Invariant.FALSE_LOSS},
    begin=("anna",),
)
LATE_COPIES: Final = (
    ExecutionScene(
        "a late copy, and an execution is stopped that holds before another",
        (ANNA, BEN, FIRST, SECOND),
        (Fault.STOP_AT_REST, Fault.COPY),
        begin=("anna", "ben"),
    ),
    LATE_REDRIVE,
)
STALLED_CALL: Final = ExecutionScene(
    "a call stalls until a later call of its acquisition has released",
    (ANNA, BEN),
    (Fault.HANG,),
    frozenset({Invariant.FREE}),
)
"""Between the release and the note in the claim that the work is done, the stalled call finds that
its claim stands. Its grant ends with its lease, and with the execution at the latest."""
SCENES: Final = (*REAPING, *EVENTS_OF_A_RUN, *KEEP_ALIVE, *LATE_COPIES)
KNOWN_GAPS: Final = (STALLED_CALL,)
"""Each search finds something: what the protocol does not do yet, or cannot do."""
