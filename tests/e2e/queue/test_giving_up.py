"""A wait that ends, functions that fail while others wait, and what waiting costs."""

from __future__ import annotations

import math
import time
import uuid

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.queued_lock import (
    HOLDER,
    KILLED_AFTER,
    QUEUE,
    WAITS_SECONDS,
    Advanced,
    GaveUp,
    LateGrant,
    QueuedLock,
    Waited,
)
from tests.e2e.queue.stack import GIVES_UP_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

# A wait ends within two seconds of `max_wait`, and leaves nothing behind.


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


# Whatever breaks, the queue advances, and no one is inside beside another caller's lease.


def seconds_of(advanced: Advanced) -> float:
    assert advanced.seconds is not None, "it still waits"
    return advanced.seconds


def test_a_waiter_that_was_not_told_finds_its_grant_at_its_next_question(
    queue_runs: ScenarioRuns,
) -> None:
    lost: Advanced = queue_runs.only("push lost")
    assert HOLDER not in lost.holders_meanwhile
    assert (len(lost.holders_meanwhile), lost.waiters_meanwhile) == (1, 0)
    assert (seconds_of(lost) > 0, lost.questions) == (True, 1)


def test_without_a_fallback_poll_a_waiter_that_was_not_told_waits_on(
    queue_runs: ScenarioRuns,
) -> None:
    lost: Advanced = queue_runs.only("push lost, no fallback")
    assert (len(lost.holders_meanwhile), lost.waiters_meanwhile) == (1, 0)
    assert (lost.seconds, lost.questions) == (None, 0)


def test_a_dead_waiter_at_the_head_of_the_queue_is_passed_over_at_once(
    deployment: Deployment,
) -> None:
    line = QueuedLock(deployment)
    first, second = line.join(QUEUE), line.join(QUEUE)
    deployment.stop(first)
    released_at = line.release()
    assert line.holders() in ([second], [])
    assert line.began(second) > released_at
    assert deployment.timeline(second).calls("Guard: Acquire", after=released_at) == []


def test_a_dead_waiter_that_is_not_noticed_costs_its_lease_and_a_poll(
    queue_runs: ScenarioRuns,
) -> None:
    untold: Advanced = queue_runs.only("dead waiter, untold")
    assert (len(untold.holders_meanwhile), untold.waiters_meanwhile) == (1, 1)
    assert (seconds_of(untold) > 0, untold.questions) == (True, 1)


@pytest.mark.parametrize("requests", KILLED_AFTER)
def test_a_releaser_killed_between_any_two_requests_delays_the_queue_by_its_lease_and_a_poll(
    queue_runs: ScenarioRuns, requests: float
) -> None:
    killed: Advanced = queue_runs.only(f"killed after {requests}")
    handed_over = requests == KILLED_AFTER[-1]
    still_holds = killed.holders_meanwhile == [HOLDER]
    assert (still_holds, killed.waiters_meanwhile) == (not handed_over, int(not handed_over))
    assert (seconds_of(killed) > 0, killed.questions) == (True, 1)


def test_after_its_last_request_a_releaser_is_not_needed_any_more(deployment: Deployment) -> None:
    line = QueuedLock(deployment)
    execution = line.join(QUEUE)
    asked_at = time.time()
    assert not line.release_killed(after_requests=math.inf, after_wakes=1)
    assert line.began(execution) > asked_at
    assert deployment.timeline(execution).calls("Guard: Acquire", after=asked_at) == []


def test_without_a_fallback_poll_the_waiter_of_a_killed_releaser_waits_on(
    queue_runs: ScenarioRuns,
) -> None:
    killed: Advanced = queue_runs.only("killed, no fallback")
    assert (killed.holders_meanwhile, killed.waiters_meanwhile) == ([HOLDER], 1)
    assert (killed.seconds, killed.questions) == (None, 0)


# A guard in the queue costs the same whether it waits a second or a minute; polling does not.

WORK = 1


@pytest.mark.parametrize(
    ("machine", "overhead"), [("QueuePatient", 3), ("QueuePatientChain", 4), ("Waits", 4)]
)
def test_uncontended_a_guard_costs_a_known_number_of_transitions(
    deployment: Deployment, machine: str, overhead: int
) -> None:
    execution = deployment.start(machine, {"lock": str(uuid.uuid4())})
    assert deployment.ended(execution).status == "SUCCEEDED"
    work = 2 if machine == "QueuePatientChain" else WORK
    assert deployment.transitions(execution) == overhead + work
    assert deployment.calls(execution) == 3  # acquire, the work, release


@pytest.mark.parametrize("seconds", WAITS_SECONDS)
def test_waiting_in_the_queue_costs_no_transition_and_no_call(
    queue_runs: ScenarioRuns, seconds: int
) -> None:
    waited: Waited = queue_runs.only(f"QueuePatient waits {seconds} s")
    assert seconds <= waited.seconds
    assert (waited.transitions, waited.calls, waited.tries) == (3 + WORK, 3, 1)


@pytest.mark.parametrize("seconds", WAITS_SECONDS)
def test_waiting_by_polling_costs_three_transitions_and_a_call_a_try(
    queue_runs: ScenarioRuns, seconds: int
) -> None:
    waited: Waited = queue_runs.only(f"Waits waits {seconds} s")
    assert seconds <= waited.seconds
    assert waited.tries > 2
    assert waited.transitions == 4 + WORK + 3 * (waited.tries - 1)
    assert waited.calls == 3 + waited.tries - 1
