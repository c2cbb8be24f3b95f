"""What the known ways to lock get wrong. That a guard does not, tests/e2e/guard shows."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment, most_inside, wait_until
from tests.e2e.locks import ContestedLock

MOST_TRIES = 5
"""For those who are to be inside at once, and whom a busy machine may have begun one by one."""


@pytest.fixture
def lock(deployment: Deployment) -> ContestedLock:
    return ContestedLock(deployment)


@pytest.mark.parametrize(("machine", "is_free"), [("CaughtGuard", True), ("CaughtChain", False)])
def test_a_chain_that_catches_nothing_leaks_its_permit_and_a_guard_does_not(
    lock: ContestedLock, machine: str, *, is_free: bool
) -> None:
    """Asked before the execution goes on, and so before the reaper hears of its end."""
    ended = lock.ended(lock.start(machine, **{"raise": "CardDeclined"}))
    assert (ended.status, ended.output["error"]) == ("SUCCEEDED", "CardDeclined")
    assert ended.output["next_acquire"]["acquired"] is is_free


def test_a_chain_that_says_nothing_about_its_output_returns_the_reply_of_the_release(
    lock: ContestedLock,
) -> None:
    output = lock.ended(lock.start("OutputReplaced", **{"return": {"charged": [1, None]}})).output
    assert "charged" not in output
    assert output["Payload"]["released"] is True


def test_one_owner_for_the_whole_execution_lets_all_iterations_in(lock: ContestedLock) -> None:
    def inside() -> int:
        execution = lock.start("MapOneOwner", seconds=3)
        return most_inside(each["work"] for each in lock.ended(execution).output)

    assert any(inside() == 3 for _ in range(MOST_TRIES))


def test_a_newcomer_overtakes_a_workflow_that_polls(lock: ContestedLock) -> None:
    def overtakes() -> bool:
        owner_id = lock.ask()["owner_id"]
        execution = lock.start("PollShares", seconds=0)
        entered = lock.deployment.states_entered
        wait_until(lambda: "Guard: Wait" in entered(execution))
        lock.release(owner_id)
        answer = lock.ask()
        if answer["acquired"]:
            lock.release(answer["owner_id"])
        assert lock.ended(execution).status == "SUCCEEDED"
        return bool(answer["acquired"])

    assert any(overtakes() for _ in range(MOST_TRIES))


def test_a_new_owner_for_the_repeated_acquire_waits_for_itself(lock: ContestedLock) -> None:
    """The reply is lost, and the repeated call is another owner's."""
    deployment, execution = lock.deployment, lock.start("LostReplyNewOwner", seconds=0)
    wait_until(lambda: deployment.calls(execution) > 2)
    assert (lock.holders(), deployment.is_running(execution)) == ([execution], True)
    assert "Stay" not in deployment.states_entered(execution)
    deployment.stop(execution)
