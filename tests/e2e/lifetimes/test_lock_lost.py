"""With keep_alive the work stops when its lock is lost; a redrive does not run it unguarded."""

from __future__ import annotations

from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES, TIMES
from tests.e2e.lifetimes.dying_workflows import LONG_INTERVAL_SECONDS
from tests.e2e.lifetimes.keep_alive import Lost, Redriven
from tests.e2e.lifetimes.stack import INTERVAL_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns


def test_a_lock_that_is_lost_ends_the_work_within_an_interval(
    runs: ScenarioRuns, tell: Tell
) -> None:
    lost: list[Lost] = runs["lock lost"]
    assert {(each.ended.status, each.ended.error) for each in lost} == {("FAILED", "LockLost")}
    assert not any(each.finished for each in lost)
    seconds = [each.seconds for each in lost]
    tell(f"lock lost, kept alive every {INTERVAL_SECONDS} s: until the work stops", seconds)
    assert len(seconds) == ALIKE_TIMES
    assert max(each.heartbeats for each in lost) <= 1, "the next heartbeat finds out"


def test_without_keep_alive_the_work_goes_on_without_the_lock(runs: ScenarioRuns) -> None:
    lost: list[Lost] = runs["lock lost, not kept alive"]
    assert {each.ended.status for each in lost} == {"SUCCEEDED"}
    assert all(each.finished for each in lost)


def test_a_redriven_workflow_takes_its_lock_again_if_it_is_free(
    runs: ScenarioRuns, tell: Tell
) -> None:
    redriven: list[Redriven] = runs["redriven, free"]
    assert [each.holders for each in redriven] == [[each.execution] for each in redriven]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}
    assert [(each.finished, each.left) for each in redriven] == [(True, [])] * TIMES
    tell("redriven, lock free: until it is taken again", [each.again_seconds for each in redriven])


def test_a_redriven_workflow_whose_lock_is_taken_ends_with_lock_lost(
    runs: ScenarioRuns, tell: Tell
) -> None:
    redriven: list[Redriven] = runs["redriven, taken"]
    assert {(each.ended.status, each.ended.error) for each in redriven} == {("FAILED", "LockLost")}
    assert [(each.finished, each.left) for each in redriven] == [(False, ["another"])] * ALIKE_TIMES
    seconds = [each.seconds for each in redriven]
    tell(f"redriven, lock taken, interval {LONG_INTERVAL_SECONDS} s: until the work stops", seconds)


def test_a_workflow_that_is_redriven_at_once_holds_its_lock_to_the_end(runs: ScenarioRuns) -> None:
    redriven: list[Redriven] = runs["redriven, not reaped"]
    assert [each.holders for each in redriven] == [[each.execution] for each in redriven]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}


def test_without_keep_alive_a_redriven_workflow_works_without_the_lock(runs: ScenarioRuns) -> None:
    redriven: list[Redriven] = runs["redriven, not kept alive"]
    assert {each.ended.status for each in redriven} == {"SUCCEEDED"}
    assert all(each.finished for each in redriven)
    assert all(each.execution not in each.holders for each in redriven)
