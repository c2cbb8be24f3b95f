"""A redriven workflow waits again for its lock, and takes nothing from those who came since."""

from __future__ import annotations

import pytest

from tests.e2e.attacks.redrives import GUARDED, UNGUARDED, Redriven
from tests.e2e.scenario_runs import ScenarioRuns


@pytest.mark.parametrize("where", GUARDED)
def test_wherever_it_was_stopped_it_works_under_its_lock_and_leaves_nothing(
    runs: ScenarioRuns, where: str
) -> None:
    redriven: Redriven = runs.only(where)
    assert (redriven.ended.status, redriven.ended.error) == ("SUCCEEDED", None)
    assert redriven.beside_seconds == 0
    assert (redriven.holders, redriven.waiters) == ([], [])


@pytest.mark.parametrize("where", UNGUARDED)
def test_control_its_work_is_repeated_beside_another_owner_as_documented(
    runs: ScenarioRuns, where: str
) -> None:
    """So the measurement finds an overlap where there is one: no guard re-enters its work."""
    redriven: Redriven = runs.only(where)
    assert redriven.beside_seconds > 1


@pytest.mark.parametrize("where", UNGUARDED)
def test_even_then_its_release_leaves_the_lock_to_the_other_owner(
    runs: ScenarioRuns, where: str
) -> None:
    redriven: Redriven = runs.only(where)
    assert (redriven.ended.status, redriven.other_kept) == ("SUCCEEDED", True)
    assert (redriven.holders, redriven.waiters) == ([], [])
