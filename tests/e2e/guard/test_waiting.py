"""Guards in the queue: who comes next, whose answers count, what breaks, what waiting costs."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.protocol.claims import ReapStage, claims_of, task_token_in
from fairlock.protocol.schema import EXECUTION_ARN, TASK_TOKEN
from fairlock.protocol.waiters import oldest_waiters
from tests.e2e.deployment import Deployment, most_inside, wait_until
from tests.e2e.guard.queued_lock import (
    HOLDER,
    KILLED_AFTER,
    POLLING,
    QUEUE,
    WAITS_SECONDS,
    Advanced,
    GaveUp,
    LateGrant,
    QueuedLock,
    Waited,
)
from tests.e2e.guard.stack import GIVES_UP_SECONDS, KEEP_ALIVE_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

# Turns are taken in the order of queueing, by as many as the limit says.

NUMBER = 25
MOST_STARTING = 4  # a function's cold start takes a second of a processor


def queued(line: QueuedLock, machine: str, number: int) -> list[str]:
    """So many workflows in the queue, the oldest first."""
    for started in range(number):
        line.start(machine)
        line.await_waiters(lambda waiters, least=started - MOST_STARTING: len(waiters) > least)  # type: ignore[misc]  # the default binds this round's
    line.await_waiters(lambda waiters: len(waiters) == number)
    return line.waiters()


def test_each_of_the_waiting_is_granted_once_in_the_order_of_queueing(
    deployment: Deployment,
) -> None:
    line = QueuedLock(deployment)
    executions = queued(line, QUEUE, NUMBER)
    line.release()
    spans = {execution: deployment.ended(execution).output for execution in executions}
    assert sorted(spans, key=lambda execution: spans[execution]["began_ms"]) == executions
    assert most_inside(spans.values()) == 1
    assert {deployment.transitions(execution) for execution in executions} == {4}
    assert (line.holders(), line.waiters()) == ([], [])


def test_a_limit_of_three_lets_three_in_and_never_more(deployment: Deployment) -> None:
    lock = {"lock": str(uuid.uuid4()), "limit": 3, "sleep": 2}
    executions = [deployment.start("QueueTurns", lock) for _ in range(9)]
    assert most_inside(deployment.ended(execution).output for execution in executions) == 3


# A guard believes only the answer to its own acquisition, even if others complete its task.
#
# A caller that may read the table has the tokens. The controls are the same guards without the
# check.

WORK_SECONDS: Final = 4 * KEEP_ALIVE_SECONDS
Attack = Callable[[Deployment, str, str], None]


def grant_of_another_lock(deployment: Deployment, execution: str, task_token: str) -> None:
    """The service itself grants the attacker a lock that is free, and tells the waiter's token."""
    own = {"lock_name": f"free/{uuid.uuid4()}", "owner_id": f"attacker-{uuid.uuid4()}"}
    answer = deployment.invoke("Acquire", **own, execution_arn=execution, task_token=task_token)
    assert answer["acquired"] is True
    deployment.invoke("Release", **own)


def made_up_grant(deployment: Deployment, _execution: str, task_token: str) -> None:
    """With all that the guard's release needs: where it is believed, the guard ends at once."""
    own = {"lock_name": f"made-up/{uuid.uuid4()}", "owner_id": f"attacker-{uuid.uuid4()}"}
    complete(deployment, task_token, {"acquired": True, "fencing_token": 1, **own})


every_attack = pytest.mark.parametrize("attack", [grant_of_another_lock, made_up_grant])


def complete(deployment: Deployment, task_token: str, answer: object) -> None:
    workflows = deployment.aws.client("stepfunctions")
    workflows.send_task_success(taskToken=task_token, output=json.dumps(answer))


def table_of(deployment: Deployment) -> LockTable:
    return LockTable(deployment.aws.client("dynamodb"), deployment.table_name)


def waiting_token(line: QueuedLock, execution: str) -> str:
    waiters = table_of(line.deployment).query_all(oldest_waiters(line.lock_name))
    [token] = [w[TASK_TOKEN]["S"] for w in waiters if w[EXECUTION_ARN]["S"] == execution]
    return str(token)


def heartbeat_tokens(deployment: Deployment, execution: str) -> list[str]:
    query = claims_of(execution, before=ReapStage.SECOND_PASS_DONE)
    tokens = map(task_token_in, table_of(deployment).query_all(query))
    return [token for token in tokens if token is not None]


@every_attack
def test_a_forged_answer_lets_no_one_in_and_the_waiter_waits_on(
    deployment: Deployment, attack: Attack
) -> None:
    line = QueuedLock(deployment)
    execution = line.join(QUEUE)
    attack(deployment, execution, waiting_token(line, execution))
    wait_until(lambda: len(deployment.timeline(execution).calls("Guard: Acquire")) > 1)
    line.await_waiters(lambda waiters: list(waiters) == [execution])
    released_at = line.release()
    assert line.began(execution) > released_at
    assert deployment.failed_calls(execution) == ["States.QueryEvaluationError"]


@every_attack
def test_control_without_the_check_a_forged_answer_lets_the_waiter_in_beside_the_holder(
    deployment: Deployment, attack: Attack
) -> None:
    line = QueuedLock(deployment)
    execution = line.join("QueueBelieving")
    attack(deployment, execution, waiting_token(line, execution))
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert line.holders() == [HOLDER]


@pytest.mark.parametrize(
    ("machine", "goes_on"), [("KeptAliveShares", True), ("KeptAliveBelieving", False)]
)
def test_a_forged_answer_ends_no_heartbeat_unless_the_check_is_left_out(
    deployment: Deployment, machine: str, *, goes_on: bool
) -> None:
    lock = {"lock": str(uuid.uuid4()), "seconds": WORK_SECONDS}
    execution = deployment.start(machine, lock)
    wait_until(lambda: heartbeat_tokens(deployment, execution) != [], pause_seconds=0.1)
    [token] = heartbeat_tokens(deployment, execution)
    complete(deployment, token, {})
    forged_at = time.time()
    assert deployment.ended(execution).status == "SUCCEEDED"
    later = deployment.timeline(execution).entries("Guard: Heartbeat", after=forged_at)
    assert (later != []) is goes_on
    # The forged answer is not believed; that of the release is, and ends the heartbeat.
    refused = deployment.failed_calls(execution).count("States.QueryEvaluationError")
    assert refused == int(goes_on)


# Whatever breaks, the queue advances, and no one is inside beside another caller's lease.


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


def seconds_of(advanced: Advanced) -> float:
    assert advanced.seconds is not None, "it still waits"
    return advanced.seconds


@pytest.mark.parametrize(("which", "waiters"), [("push lost", 0), ("dead waiter, untold", 1)])
def test_a_waiter_that_was_not_told_finds_its_grant_at_its_next_question(
    queue_runs: ScenarioRuns, which: str, waiters: int
) -> None:
    """Of a dead waiter that no one notices, the lease has to end before."""
    lost: Advanced = queue_runs.only(which)
    assert HOLDER not in lost.holders_meanwhile
    assert (len(lost.holders_meanwhile), lost.waiters_meanwhile) == (1, waiters)
    assert (seconds_of(lost) > 0, lost.questions) == (True, 1)


@pytest.mark.parametrize("requests", KILLED_AFTER)
def test_a_releaser_killed_between_any_two_requests_delays_the_queue_by_its_lease_and_a_poll(
    queue_runs: ScenarioRuns, requests: float
) -> None:
    killed: Advanced = queue_runs.only(f"killed after {requests}")
    handed_over = requests == KILLED_AFTER[-1]
    still_holds = killed.holders_meanwhile == [HOLDER]
    assert (still_holds, killed.waiters_meanwhile) == (not handed_over, int(not handed_over))
    assert (seconds_of(killed) > 0, killed.questions) == (True, 1)


@pytest.mark.parametrize(
    ("which", "waiters"), [("push lost, no fallback", 0), ("killed, no fallback", 1)]
)
def test_control_without_a_fallback_poll_it_waits_on(
    queue_runs: ScenarioRuns, which: str, waiters: int
) -> None:
    lost: Advanced = queue_runs.only(which)
    assert (len(lost.holders_meanwhile), lost.waiters_meanwhile) == (1, waiters)
    assert (lost.seconds, lost.questions) == (None, 0)


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


def test_a_grant_that_comes_while_giving_up_is_given_back(queue_runs: ScenarioRuns) -> None:
    late: LateGrant = queue_runs.only("granted while giving up")
    assert late.granted_to_waiter
    assert (late.ended.status, late.ended.error) == ("FAILED", "LockWaitTimeout")
    assert (late.holders, late.waiters) == ([], [])


# A guard in the queue costs the same however long it waits; polling does not.


@pytest.mark.parametrize(
    ("machine", "cost"), [("QueueFlat", 4), ("QueueChainPath", 7), ("PollFlat", 5)]
)
def test_uncontended_a_guard_costs_a_known_number_of_transitions(
    deployment: Deployment, machine: str, cost: int
) -> None:
    """Of the four and seven, one and three are the states of the workflow itself."""
    execution = deployment.start(machine, {})
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert deployment.transitions(execution) == cost
    assert deployment.calls(execution) == 3  # acquire, the work, release


def test_waiting_in_the_queue_costs_no_transition_and_no_call(queue_runs: ScenarioRuns) -> None:
    waited: Waited = queue_runs.only(f"{QUEUE} waits")
    assert waited.seconds >= WAITS_SECONDS
    assert (waited.transitions, waited.calls, waited.tries) == (4, 3, 1)


def test_waiting_by_polling_costs_three_transitions_and_a_call_a_try(
    queue_runs: ScenarioRuns,
) -> None:
    waited: Waited = queue_runs.only(f"{POLLING} waits")
    assert waited.seconds >= WAITS_SECONDS
    assert waited.tries > 2
    assert waited.transitions == 5 + 3 * (waited.tries - 1)
    assert waited.calls == 3 + waited.tries - 1
