"""Whatever breaks, the queue advances, and no one is inside beside another caller's lease."""

from __future__ import annotations

import math
import time

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.queue.queued_lock import HOLDER, QueuedLock
from tests.e2e.queue.scenarios import KILLED_AFTER, QUEUE, Advanced
from tests.e2e.scenario_runs import ScenarioRuns


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
