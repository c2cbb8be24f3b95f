"""What the guard does when calls of the lock service go wrong."""

from __future__ import annotations

from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.guard.test_errors import lock_of


def test_a_release_that_fails_does_not_replace_the_result(deployment: Deployment) -> None:
    execution = deployment.start("NotReleased", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    assert "Guard: Not released" in deployment.states_entered(execution)
    assert deployment.held(lock_of(execution)) == 1  # until the lease ends it


def test_a_release_that_fails_does_not_replace_the_error(deployment: Deployment) -> None:
    execution = deployment.start("NotReleased", {"raise": "CardDeclined"})
    assert deployment.ended(execution).error == "CardDeclined"
    assert "Guard: Release after error" in deployment.states_entered(execution)
    # The reaper gets an event of the failure, and may release the lock first.
    wait_until(lambda: deployment.held(lock_of(execution)) == 0)


def test_a_lost_reply_does_not_make_the_workflow_wait_for_itself(deployment: Deployment) -> None:
    execution = deployment.start("LostReply", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    assert deployment.failed_calls(execution) == ["ConnectionError"]
    states = deployment.states_entered(execution)
    assert "Guard: Wait" not in states
    assert states.count("Guard: Enter") == 1
    assert deployment.held(lock_of(execution)) == 0


def test_a_grant_whose_call_failed_for_good_is_given_back(deployment: Deployment) -> None:
    execution = deployment.start("GrantedAndFailed", {})
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "granted, but who knows" in (ended.cause or "")
    assert "Work" not in deployment.states_entered(execution)
    assert deployment.held(lock_of(execution)) == 0


def test_an_acquisition_that_was_released_meanwhile_begins_again(deployment: Deployment) -> None:
    execution = deployment.start("ReleasedMeanwhile", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    states = deployment.states_entered(execution)
    assert (states.count("Guard: Enter"), states.count("Guard: Acquire")) == (1, 2)
    assert deployment.held(lock_of(execution)) == 0


def test_a_waiter_that_is_released_again_and_again_gives_up_in_its_time_after_few_transitions(
    deployment: Deployment,
) -> None:
    execution = deployment.start("NeverHeld", {})
    assert deployment.ended(execution).error == "LockWaitTimeout"
    states = deployment.states_entered(execution)
    # After pauses of 1, 2 and at most 3 s.
    tries = 1 + states.count("Guard: Acquire again")
    assert (states.count("Guard: Enter"), tries in (2, 3, 4)) == (1, True)
    assert deployment.transitions(execution) == 1 + 3 * tries - 1 + len(["Give up", "Timed out"])
    assert "Work" not in states
