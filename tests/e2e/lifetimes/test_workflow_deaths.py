"""A lock lives as long as the workflow that holds it, however that one dies."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import wait_until
from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES, TIMES
from tests.e2e.lifetimes.scenarios import FOLLOWED_EVERY, REAPED
from tests.e2e.lifetimes.workflow_deaths import WITHIN_SECONDS, Death
from tests.e2e.scenario_runs import ScenarioRuns

FOLLOWED = len(range(0, TIMES, FOLLOWED_EVERY))
ENDS = {
    "in the work": ("ABORTED", None),
    "in the wait": ("ABORTED", None),
    "in acquire": ("ABORTED", None),
    "in release": ("ABORTED", None),
    "by its timeout": ("TIMED_OUT", None),
    "by States.Runtime": ("FAILED", "States.Runtime"),
    "with its task": ("FAILED", "Runtime.ExitError"),
}


@pytest.mark.parametrize("how", REAPED)
def test_its_lock_is_free_at_once_and_the_next_one_works(
    runs: ScenarioRuns, how: str, tell: Tell
) -> None:
    deaths: list[Death] = runs[f"dies {how}"]
    assert {(death.ended.status, death.ended.error) for death in deaths} == {ENDS[how]}
    held = [death.seconds for death in deaths if death.seconds is not None]
    assert len(held) == TIMES, "some are still held"
    tell(f"a workflow dies {how}: held", held)
    following = [death.next_seconds for death in deaths if death.next_seconds is not None]
    assert len(following) == FOLLOWED
    tell(f"a workflow dies {how}: until the next one works", following)
    assert max(held + following) < WITHIN_SECONDS
    assert {death.next_ended.status for death in deaths if death.next_ended} == {"SUCCEEDED"}


@pytest.mark.parametrize("how", REAPED)
def test_nothing_of_it_is_left(runs: ScenarioRuns, how: str) -> None:
    deaths: list[Death] = runs[f"dies {how}"]
    assert [(death.holders, death.waiters) for death in deaths] == [([], [])] * TIMES
    for death in deaths:
        wait_until(lambda death=death: death.claims == [])  # type: ignore[misc]  # the default binds this one


@pytest.mark.parametrize("how", REAPED)
def test_of_an_unnoticed_death_the_lock_is_still_taken(runs: ScenarioRuns, how: str) -> None:
    deaths: list[Death] = runs[f"dies {how}, unnoticed"]
    for death in deaths:
        assert (death.ended.status, death.ended.error) == ENDS[how]
        assert death.seconds is None
        assert death.execution in death.left


def test_a_release_that_lands_late_changes_nothing_for_the_next_one(runs: ScenarioRuns) -> None:
    deaths: list[Death] = runs["dies in release"]
    followed = [death for death in deaths if death.next_ended is not None]
    assert [death.meanwhile for death in followed] == [[death.follower] for death in followed]
    assert len(followed) == FOLLOWED


def test_a_machine_that_is_watched_is_reaped_and_the_others_are_not(
    runs: ScenarioRuns, tell: Tell
) -> None:
    watched: list[Death] = runs["dies watched"]
    held = [death.seconds for death in watched if death.seconds is not None]
    assert len(held) == ALIKE_TIMES
    tell("a watched workflow dies in the work: held", held)
    unwatched: list[Death] = runs["dies unwatched"]
    assert [death.seconds for death in unwatched] == [None] * ALIKE_TIMES
    assert [death.left for death in unwatched] == [[death.execution] for death in unwatched]
