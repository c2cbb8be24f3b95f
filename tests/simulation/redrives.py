"""Scenario 14: executions are stopped and redriven again and again; events come late and twice.

A redriven execution without keep_alive works unguarded, as the documents say, and so believes to
hold nothing. One with keep_alive holds again from the answer of its heartbeat on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from fairlock.store import reap
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults
from tests.simulation.functions import lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_events import BOUND_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import half_an_hour, let_happen, require_all_free
from tests.simulation.world import World


def _play(world: World) -> None:
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
    play=_play,
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
