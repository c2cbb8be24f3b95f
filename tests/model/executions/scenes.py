"""Who acts in the searches over the ends of executions, and what happens to them."""

from __future__ import annotations

from typing import Final

from tests.model.executions.actors import Beats, Force, Look, Workflow
from tests.model.executions.scene import ALL, Promise, Scene

ANNA: Final = Workflow(name="anna", place=0, doomed=True)
ZITA: Final = Workflow(name="zita", place=1, doomed=True)
"""Claims come in the order of their names: hers after that of Anna, who may hold the lock."""
BEN: Final = Workflow(name="ben", place=2)
CARE: Final = Workflow(name="anna", place=0, doomed=True, keep_alive=True)
CARE_THAT_FAILS: Final = Workflow(name="anna", place=0, doomed=True, keep_alive=True, may_fail=True)
FIRST: Final = Look(name="first look")
SECOND: Final = Look(name="second look", second=True, after=FIRST.name)
_FIRST_AGAIN: Final = Look(name="first look, delivered twice")
_SECOND_AGAIN: Final = Look(name="second look, delivered twice", second=True, after=SECOND.name)

_WITH_CALLS_UNDER_WAY: Final = ALL - {Promise.SKIPPED}
"""An acquire that is under way may join the queue after the reaper has been there."""
_AFTER_A_LOSS: Final = ALL - {Promise.SKIPPED, Promise.FALSE_LOSS, Promise.HARMED}

REDRIVEN_IN_THAT_MOMENT: Final = Scene(
    name="an execution is redriven between the question whether it is over and its eviction",
    cast=(ANNA, Workflow(name="ben", place=1)),
    arrived=("ben", "anna"),
    stops=1,
    redrives=1,
    stopped_in_calls=False,
    promises=frozenset({Promise.HARMED}),
)
REAPING: Final = (
    Scene(
        name="an acquire is under way when its execution is stopped",
        cast=(ANNA, BEN, FIRST, SECOND),
        stops=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="one iteration of a Map holds and another waits, before somebody else",
        cast=(ANNA, ZITA, BEN, FIRST, SECOND),
        arrived=("anna", "zita", "ben"),
        stops=1,
        stopped_in_calls=False,
    ),
    Scene(
        name="one iteration of a Map holds and another is on its way into the queue",
        cast=(ANNA, ZITA, FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="functions are killed, the reaper among them",
        cast=(ANNA, BEN, FIRST, SECOND),
        arrived=("anna", "ben"),
        stops=1,
        kills=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="the event is delivered twice, at any time",
        cast=(ANNA, FIRST, SECOND, _FIRST_AGAIN),
        stops=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="the second look is delivered twice, with somebody waiting",
        cast=(ANNA, BEN, FIRST, SECOND, _SECOND_AGAIN),
        arrived=("anna", "ben"),
        stops=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an execution is redriven while its acquire is still under way",
        cast=(ANNA, FIRST, SECOND),
        stops=1,
        redrives=1,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    Scene(
        name="an execution is redriven that waits behind somebody",
        cast=(ANNA, BEN, FIRST, SECOND),
        arrived=("ben", "anna"),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        promises=_WITH_CALLS_UNDER_WAY,
    ),
    REDRIVEN_IN_THAT_MOMENT,
)
KEEPING: Final = (
    Scene(
        name="the work ends while beats are under way, and somebody waits",
        cast=(CARE, Beats(workflow=CARE, most=2), BEN),
    ),
    Scene(
        name="the work fails while beats are under way, and somebody waits",
        cast=(CARE_THAT_FAILS, Beats(workflow=CARE_THAT_FAILS, most=2), BEN),
    ),
    Scene(
        name="beats are given up for late, and land after the release",
        cast=(CARE, Beats(workflow=CARE, most=3)),
        arrived=("anna",),
        hangs=2,
    ),
    Scene(
        name="functions are killed, release and heartbeat among them",
        cast=(CARE, Beats(workflow=CARE, most=2), FIRST, SECOND),
        arrived=("anna",),
        kills=1,
    ),
    Scene(
        name="a release is killed, and then its execution is stopped",
        cast=(CARE, FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        kills=1,
    ),
    Scene(
        name="the lock is released by force",
        cast=(CARE, Beats(workflow=CARE, most=2), Force(workflow=CARE)),
        arrived=("anna",),
        promises=_AFTER_A_LOSS,
    ),
    Scene(
        name="an execution with keep_alive is stopped while it beats",
        cast=(CARE, Beats(workflow=CARE, most=1), FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        promises=_AFTER_A_LOSS,
    ),
    Scene(
        name="an execution with keep_alive is redriven, at any point of the two looks",
        cast=(CARE, Beats(workflow=CARE, most=2), FIRST, SECOND),
        arrived=("anna",),
        stops=1,
        redrives=1,
        stopped_in_calls=False,
        promises=_AFTER_A_LOSS,
    ),
    Scene(
        name="all events are lost, a contender takes over, and the execution is redriven",
        cast=(CARE, Beats(workflow=CARE, most=1), BEN),
        arrived=("anna",),
        stops=1,
        redrives=1,
        epochs=1,
        stopped_in_calls=False,
        promises=frozenset({Promise.LIMIT, Promise.SILENT}),
    ),
)
SCENES: Final = (*REAPING, *KEEPING)
