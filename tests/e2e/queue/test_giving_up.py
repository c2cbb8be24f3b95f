"""A wait ends within two seconds of `max_wait`, and leaves nothing behind."""

from __future__ import annotations

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.queued_lock import HOLDER
from tests.e2e.queue.scenarios import GaveUp, LateGrant
from tests.e2e.queue.stack import GIVES_UP_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns


@pytest.mark.parametrize("seconds", GIVES_UP_SECONDS)
def test_a_wait_ends_with_its_error_within_two_seconds_of_max_wait(
    queue_runs: ScenarioRuns, seconds: int
) -> None:
    gave_up: GaveUp = queue_runs.only(f"gives up {seconds}")
    assert (gave_up.ended.status, gave_up.ended.error) == ("FAILED", "LockWaitTimeout")
    assert f"not granted within max_wait of {seconds} s" in (gave_up.ended.cause or "")
    assert set(gave_up.failed_calls) <= {"States.Timeout"}, "else the wait begins again"
    assert abs(gave_up.waited_seconds - seconds) <= 2
    assert gave_up.seconds >= gave_up.waited_seconds
    assert (gave_up.waiters, gave_up.holders) == ([], [HOLDER])


def test_a_wait_that_is_over_goes_another_way_with_its_input(queue_runs: ScenarioRuns) -> None:
    gave_up: GaveUp = queue_runs.only("gives up elsewhere")
    assert gave_up.ended.status == "SUCCEEDED"
    assert list(gave_up.ended.output) == ["later"]
    assert gave_up.ended.output["later"]["sleep"] == 0
    assert (gave_up.waiters, gave_up.holders) == ([], [HOLDER])


def test_a_grant_that_comes_while_giving_up_is_given_back(queue_runs: ScenarioRuns) -> None:
    late: LateGrant = queue_runs.only("granted while giving up")
    assert late.granted_to_waiter
    assert (late.ended.status, late.ended.error) == ("FAILED", "LockWaitTimeout")
    assert (late.holders, late.waiters) == ([], [])


@pytest.mark.parametrize(
    ("mistake", "rule"),
    [
        ({"lock": "x" * 513}, "lock_name: must have at most 512 bytes of UTF-8, and has 513"),
        ({"lock": 7}, "lock_name: must be a string of 1 to 512 bytes"),
        ({"lock": "mistaken", "limit": 101}, "limit: must be a whole number from 1 to 100"),
    ],
)
def test_a_mistake_in_the_request_fails_at_once_and_is_not_repeated(
    deployment: Deployment, mistake: dict[str, object], rule: str
) -> None:
    execution = deployment.start("QueueTurns", mistake)
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert rule in (ended.cause or "")
    acquires = deployment.states_entered(execution).count("Guard: Acquire")
    assert (acquires, deployment.transitions(execution)) == (1, 4)
