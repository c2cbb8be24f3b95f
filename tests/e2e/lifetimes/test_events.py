"""Events of dead workflows may come twice, late and in any order."""

from __future__ import annotations

from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES
from tests.e2e.lifetimes.replayed_events import Replayed
from tests.e2e.reap_passes import wait_for_reap_passes
from tests.e2e.scenario_runs import ScenarioRuns

REAP_PASSES = 1 + 1 + 2 + 1 + 2
"""Two by its own event, four by the events sent again, and a second pass that was sent."""


def test_events_that_come_again_free_nothing_of_those_who_came_later(runs: ScenarioRuns) -> None:
    replayed: list[Replayed] = runs["replayed"]
    assert [(each.third.status, each.fourth.status) for each in replayed] == (
        [("SUCCEEDED", "SUCCEEDED")] * ALIKE_TIMES
    )
    assert [each.overlap_seconds for each in replayed] == [0] * ALIKE_TIMES


def test_all_those_events_were_processed(deployment: Deployment, runs: ScenarioRuns) -> None:
    replayed: list[Replayed] = runs["replayed"]
    executions = [execution for each in replayed for execution in each.dead]
    wait_for_reap_passes(deployment, executions, least=REAP_PASSES)


def test_forged_messages_about_a_holder_that_runs_free_nothing(runs: ScenarioRuns) -> None:
    """That they free the lock of one that is over, `test_workflow_deaths.py` shows."""
    replayed: list[Replayed] = runs["event of the living"]
    assert [(each.third.status, each.fourth.status) for each in replayed] == (
        [("SUCCEEDED", "SUCCEEDED")] * len(replayed)
    )
    assert all(each.overlap_seconds == 0 for each in replayed)
