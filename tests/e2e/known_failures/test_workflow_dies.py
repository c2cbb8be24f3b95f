"""Workflows that die where nothing inside them can release.

What becomes of their locks if no event tells the reaper is in `e2e/lifetimes/test_unnoticed.py`.
"""

from __future__ import annotations

import pytest

from fairlock.protocol.lease_time import over_at_ms
from tests.e2e.known_failures.scenarios import Freed
from tests.e2e.scenario_runs import ScenarioRuns

SLACK_MS = 25_000
"""For a busy machine; less than until the reaper's second pass."""


@pytest.fixture(params=["stopped", "acquired late"])
def freed(failure_runs: ScenarioRuns, request: pytest.FixtureRequest) -> Freed:
    """After a stop in the middle of the work, and after an acquire that landed after the stop."""
    freed: Freed = failure_runs.only(request.param)
    return freed


def test_the_lock_of_a_stopped_workflow_is_free_before_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    freed = failure_runs.only("stopped")
    assert freed.status == "ABORTED"
    assert freed.knocks.granted_at_ms < freed.lease_ends_at_ms


def test_a_lock_acquired_late_for_a_dead_workflow_is_free_when_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    """Between the reaper's two passes, when another caller asks."""
    freed = failure_runs.only("acquired late")
    assert freed.status == "ABORTED"
    over_ms = over_at_ms(freed.lease_ends_at_ms)
    assert over_ms < freed.knocks.granted_at_ms < over_ms + SLACK_MS
    assert len(freed.knocks.leases_seen) <= 1, "its lease was extended"


def test_while_the_workflow_runs_its_lock_is_not_free(freed: Freed) -> None:
    assert (freed.meanwhile["acquired"], freed.meanwhile["reason"]) == (False, "HELD")
    assert [holder["owner_name"] for holder in freed.meanwhile["holders"]] == [
        freed.other_execution
    ]
