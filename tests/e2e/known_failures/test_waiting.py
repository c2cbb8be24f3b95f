"""Waiting: not for oneself, not for ever, and not behind newcomers."""

from __future__ import annotations

from tests.e2e.deployment import wait_until
from tests.e2e.known_failures.lock import Lock
from tests.e2e.known_failures.scenarios import FOR_EVER_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

MOST_TRIES = 5


def test_a_repeated_acquire_finds_the_grant_whose_reply_was_lost(lock: Lock) -> None:
    execution = lock.start("LostReply", seconds=0)
    assert lock.ended(execution).status == "SUCCEEDED"
    assert set(lock.deployment.failed_calls(execution)) == {"ConnectionError"}
    assert "Guard: Wait" not in lock.deployment.states_entered(execution)
    assert lock.state().held == 0


def test_a_new_owner_for_the_repeated_acquire_waits_for_itself(failure_runs: ScenarioRuns) -> None:
    seen = failure_runs.only("waits for itself")
    assert seen.holders == [seen.execution]
    assert (seen.is_running, seen.was_inside) == (True, False)


def test_a_wait_ends_after_max_wait_in_an_error_of_its_own(failure_runs: ScenarioRuns) -> None:
    ended = failure_runs.only("gave up").ended
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")


def test_a_chain_without_max_wait_waits_on(failure_runs: ScenarioRuns) -> None:
    seen = failure_runs.only("gave up")
    assert seen.other_is_running
    assert seen.other_tries > 1


def test_a_newcomer_does_not_overtake_a_workflow_in_the_queue(lock: Lock) -> None:
    holder = lock.take()
    execution = lock.start("Guarded", seconds=FOR_EVER_SECONDS)
    wait_until(lambda: lock.deployment.waiters(lock.name) == [execution])
    lock.release(holder)
    assert lock.ask()["reason"] == "HELD"
    assert lock.deployment.holders(lock.name) == [execution]
    lock.deployment.stop(execution)


def test_a_newcomer_overtakes_a_workflow_that_polls(lock: Lock) -> None:
    assert any(overtakes(lock) for _ in range(MOST_TRIES))


def overtakes(lock: Lock) -> bool:
    """Whether a newcomer was quicker than a workflow that came long before."""
    holder = lock.take()
    execution = lock.start("Polling", seconds=0)
    wait_until(lambda: "Guard: Wait" in lock.deployment.states_entered(execution))
    lock.release(holder)
    answer = lock.ask()
    if answer["acquired"]:
        lock.release(answer["owner_id"])
    assert lock.ended(execution).status == "SUCCEEDED"
    return bool(answer["acquired"])
