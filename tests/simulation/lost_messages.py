"""Scenarios in which messages are lost: 5, 10, 11 and 14."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import Any, Final
from unittest.mock import patch

from fairlock.aws.executions import Execution, Liveness, StepFunctions
from fairlock.protocol import outcomes
from fairlock.protocol.outcomes import AlreadyHolder, Situation
from fairlock.store import acquire, reap
from tests.simulation import machines
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults, Network
from tests.simulation.functions import Json, LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.machines import LEASE_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import (
    Load,
    Workflows,
    figures_of,
    half_an_hour,
    let_happen,
    require_all_free,
    wait_until_idle,
)
from tests.simulation.world import World

# Scenario 5: all status events are lost for an hour, while executions are stopped.

_SECONDS: Final = 3_600.0
_FALLBACK_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 20.0
BOUND_SECONDS: Final = LEASE_SECONDS + 5 + _FALLBACK_SECONDS + _REQUEST_SECONDS
"""Lease + 5 s, one fallback period, and a call of acquire that is repeated."""


def _play(world: World) -> None:
    faults = AccountFaults(events=EventFaults(lost_spans=((0.0, _SECONDS),)))
    account = Account(world, faults)
    forms = {"queue": 8, "kept alive": 1, "poll": 1}
    an_hour = half_an_hour(
        world, names=3_000, seconds=_SECONDS, work_seconds=40.0, forms=forms, stopped=0.3
    )
    let_happen(account, an_hour)


LOST_EVENTS: Final = Scenario(
    number=5,
    title="all events are lost for an hour",
    load="50,000 guarded executions on 3,000 names in an hour; a third is stopped",
    promise=(
        "if a workflow dies and its event is lost, its lock is free after the lease + 5 s; a "
        "waiter in the queue notices within one more fallback period (docs/guard.md, Liveness)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a running execution counts as dead once its lease is over",
            breaks="no more holders than the limit",
            sabotage=lambda: patched(
                (StepFunctions, "describe", lambda *_: Execution(Liveness.OVER))
            ),
            scale=0.005,
        ),
        Control(
            name="a dead execution counts as running",
            breaks="no lock taken by no one",
            sabotage=lambda: patched(
                (StepFunctions, "describe", lambda *_: Execution(Liveness.RUNNING))
            ),
            scale=0.005,
        ),
    ),
)


# Scenario 11: a third of the pushes by which waiters are told of their grants are lost.

_LOST_PUSHES_SECONDS: Final = 1_800.0
_LOST: Final = 1 / 3


def _play_lost_pushes(world: World) -> None:
    account = Account(world, AccountFaults(events=EventFaults()))
    account.step_functions.lost_pushes = _LOST
    load = Load(
        executions=world.scaled(20_000),
        names=world.scaled(2_000),
        exponent=0.3,
        seconds=_LOST_PUSHES_SECONDS,
        work_seconds=60.0,
        forms={"queue": 4, "kept alive": 1},
        failing=0.05,
    )
    Workflows(account, load)
    wait_until_idle(account, from_seconds=_LOST_PUSHES_SECONDS)
    world.run(at_most=_LOST_PUSHES_SECONDS + 7_200)
    world.figures.update(figures_of(account))


def _forgets_itself() -> AbstractContextManager[object]:
    right = outcomes.judge

    def wrong(*args: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
        found = right(*args, **fields)
        return Situation.BUSY if isinstance(found, AlreadyHolder) else found

    return patched((acquire, "judge", wrong))


LOST_PUSHES: Final = Scenario(
    number=11,
    title="a third of all pushes are lost",
    load="20,000 guarded executions on 2,000 names in half an hour, work of a minute",
    promise=(
        "the waiter already has the lock; it notices after its fallback period of 5 minutes "
        "(docs/guarantees.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.002)),
    play=_play_lost_pushes,
    idle_bound=_FALLBACK_SECONDS + _REQUEST_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a waiter that asks again does not find its grant",
            breaks="no lock taken by no one",
            sabotage=_forgets_itself,
            scale=0.01,
        ),
    ),
)


# Scenario 10: each handler is killed with 1 % at each request, and stands still before 2 %.
#
# A function dies before its request arrives, while it is under way, or before the answer is back.
# Its caller learns nothing but that, and repeats the call. One that stands still goes on up to 25
# s later, perhaps when its execution has been granted the lock by another call and has released
# it. The model's one known gap is such a run (`STALLED_CALL`): a grant in vain, which ends with
# its lease. Here it occurs once or more in each run, and no lock is idle for longer than is
# promised.


def _play_killed_handlers(world: World) -> None:
    faults = AccountFaults(
        functions=LambdaFaults(kills=0.01, stalls=0.02),
        events=EventFaults(late=0.05, late_seconds=60.0, twice=0.05),
    )
    account = Account(world, faults)
    account.judges_releases = True
    forms = {"queue": 6, "kept alive": 2, "poll": 2}
    let_happen(account, half_an_hour(world, work_seconds=20.0, forms=forms, stopped=0.1))
    require_all_free(account)


def _without_retry(scope: Json, function: str) -> None:
    """Lets no state repeat its call of a function."""
    for state in scope["States"].values():
        if state.get("Arguments", {}).get("FunctionName", "").endswith(f":{function}"):
            state["Retry"] = []
        for branch in state.get("Branches", ()):
            _without_retry(branch, function)


@contextmanager
def _releases_once() -> Iterator[None]:
    changed = deepcopy(machines.recorded())
    for each in changed["machines"].values():
        _without_retry(each, "release")
    with patch.object(machines, "recorded", lambda: changed):
        yield


KILLED_HANDLERS: Final = Scenario(
    number=10,
    title="each handler is killed at each of its requests with 1 %, and stalls at 2 %",
    load="50,000 guarded executions on 2,000 names in half an hour; a tenth of them is stopped",
    promise=(
        "whatever dies between two requests, the next call, the reaper, the next departure or the "
        "fallback poll heals it (docs/protocol.md, Dying between two requests)"
    ),
    faults=Faults(),
    play=_play_killed_handlers,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a repeated acquire does not find its own grant",
            breaks="no lock taken by no one",
            sabotage=_forgets_itself,
            scale=0.01,
        ),
        Control(
            name="a guard does not repeat a release whose function has died",
            breaks="released before the end",
            sabotage=_releases_once,
            seed=2,
            scale=0.01,
        ),
    ),
)


# Scenario 14: executions are stopped and redriven again and again; events come late and twice.
#
# A redriven execution without keep_alive works unguarded, as the documents say, and so believes to
# hold nothing. One with keep_alive holds again from the answer of its heartbeat on.


def _play_redrives(world: World) -> None:
    faults = AccountFaults(
        events=EventFaults(late=0.2, late_seconds=300.0, twice=0.1),
    )
    account = Account(world, faults)
    load = half_an_hour(
        world,
        executions=30_000,
        work_seconds=40.0,
        forms={"queue": 3, "kept alive": 7},
        stopped=0.5,
        stopped_within=90.0,
        redriven=0.9,
        redriven_within=90.0,
        most_redrives=5,
    )
    let_happen(account, load)
    require_all_free(account)


def _takes_every_run() -> AbstractContextManager[object]:
    """An event frees the claims of later runs, too."""

    def wrong(claim: Any, *, redrives: int, ended_at_ms: int) -> bool:  # noqa: ANN401 - a claim
        del claim, redrives, ended_at_ms
        return True

    return patched((reap, "is_of_a_run_that_ended", wrong))


REDRIVES: Final = Scenario(
    number=14,
    title="redrive storms",
    load="30,000 guarded executions on 2,000 names in half an hour; half of all runs are stopped, "
    "and nine in ten of these are redriven within 90 s, up to five times",
    promise=(
        "the reaper frees only acquisitions of that execution, and none of an execution that was "
        "redriven since; a heartbeat takes the lock again if it is free (docs/guard.md, Redrive)"
    ),
    faults=Faults(),
    play=_play_redrives,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="an event frees what a later run has claimed",
            breaks="no more holders than the limit",
            sabotage=_takes_every_run,
        ),
    ),
)
