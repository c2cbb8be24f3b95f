"""An error leaves the guard as it is, after the lock was released."""

from __future__ import annotations

import json

import pytest

from tests.e2e.deployment import Deployment, Ended, wait_until

FAILING = {"raise": "CardDeclined", "message": "no funds"}


def lock_of(execution_arn: str) -> str:
    """The lock that most forms use: one of its own for each execution."""
    return f"form/{execution_arn.rsplit(':', 1)[1]}"


@pytest.mark.parametrize("form", ["Flat", "FlatPath", "ChainPath", "ChainDecides"])
def test_the_tasks_error_keeps_its_name_and_cause(deployment: Deployment, form: str) -> None:
    execution = deployment.start(form, FAILING)
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"
    assert deployment.held(lock_of(execution)) == 0


def test_a_fail_state_inside_the_guard_keeps_its_name_and_cause(deployment: Deployment) -> None:
    execution = deployment.start("ChainDecides", "fail")
    assert deployment.ended(execution) == Ended(status="FAILED", error="Refused", cause="by choice")
    assert deployment.held(lock_of(execution)) == 0


def test_a_succeed_state_inside_the_guard_does_not_end_the_workflow(
    deployment: Deployment,
) -> None:
    execution = deployment.start("ChainDecides", "succeed")
    assert deployment.ended(execution).output == {"after": "succeed"}
    assert deployment.held(lock_of(execution)) == 0


def test_an_error_that_the_chain_handles_is_not_an_error_of_the_guard(
    deployment: Deployment,
) -> None:
    execution = deployment.start("ChainDecides", {"raise": "Known"})
    assert deployment.ended(execution).output == {"after": "handled"}
    assert deployment.held(lock_of(execution)) == 0


def test_the_lock_is_held_while_the_task_runs_and_free_after_it(deployment: Deployment) -> None:
    execution = deployment.start("Flat", {"sleep": 0.5})
    wait_until(lambda: "Work" in deployment.states_entered(execution))
    assert deployment.held(lock_of(execution)) == 1
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert deployment.held(lock_of(execution)) == 0


def test_an_error_in_an_express_workflow_keeps_its_name(deployment: Deployment) -> None:
    ended = deployment.run_express("ExpressFlat", FAILING)
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")


def test_a_lock_name_that_is_no_name_fails_at_once_with_its_rule(deployment: Deployment) -> None:
    ended = deployment.run("GivesUp", {"lock": ""})
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "lock_name: must be a string of 1 to 512 bytes" in (ended.cause or "")
