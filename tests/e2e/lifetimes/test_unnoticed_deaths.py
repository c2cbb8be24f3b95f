"""A death that no event reports: the lock is free when its lease is over."""

from __future__ import annotations

from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import TIMES, TOLERANCE_SECONDS
from tests.e2e.lifetimes.dying_workflows import EXPRESS_LEASE_SECONDS
from tests.e2e.lifetimes.stack import FALLBACK_SECONDS, PLAIN_LEASE_SECONDS
from tests.e2e.lifetimes.unnoticed_deaths import Express, Outlived
from tests.e2e.scenario_runs import ScenarioRuns


def test_without_any_event_a_lock_is_free_for_a_caller_after_one_lease(
    runs: ScenarioRuns, tell: Tell
) -> None:
    outlived: list[Outlived] = runs["unnoticed, caller"]
    check_granted_at_the_first_question_after_the_lease(outlived)
    refused = [each.early for each in outlived if each.early and not each.early["acquired"]]
    assert {refusal["reason"] for refusal in refused} == {"HELD"}
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )


def test_without_any_event_a_lock_goes_to_a_waiting_workflow_after_a_lease_and_a_poll(
    runs: ScenarioRuns, tell: Tell
) -> None:
    outlived: list[Outlived] = runs["unnoticed, workflow"]
    check_granted_at_the_first_question_after_the_lease(outlived)
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, poll {FALLBACK_SECONDS} s, queue: held",
        [each.seconds for each in outlived],
    )


def check_granted_at_the_first_question_after_the_lease(outlived: list[Outlived]) -> None:
    assert outlived
    assert {each.asked for each in outlived} == {1}
    for each in outlived:
        assert each.granted_at >= each.lease_ends_at + TOLERANCE_SECONDS


def test_the_lock_of_a_running_workflow_is_not_free_then(runs: ScenarioRuns) -> None:
    answers = runs["unnoticed, running"]
    assert {(answer["acquired"], answer["reason"]) for answer in answers} == {(False, "HELD")}


def test_an_express_workflow_that_dies_leaves_its_lock_to_the_lease(
    runs: ScenarioRuns, tell: Tell
) -> None:
    executions: list[Express] = runs["express"]
    assert [(run.ended.status, run.ended.error) for run in executions] == [
        ("TIMED_OUT", None),
        ("FAILED", "States.Runtime"),
    ] * (TIMES // 2)
    assert [run.execution_arns for run in executions] == [[None]] * TIMES
    outlived = [run.outlived for run in executions]
    check_granted_at_the_first_question_after_the_lease(outlived)
    tell(
        f"an Express workflow dies, lease {EXPRESS_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )
