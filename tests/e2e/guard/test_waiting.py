"""Guards in the queue: who comes next, whose answers count, what breaks, what waiting costs."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from fairlock.protocol.claims import ReapStage, claims_of, read_claim
from fairlock.protocol.schema import EXECUTION_ARN, TASK_TOKEN
from fairlock.protocol.waiters import oldest_waiters
from tests.e2e.deployment import Deployment, most_inside, wait_until
from tests.e2e.guard.stack import GIVES_UP_SECONDS, KEEP_ALIVE_SECONDS, SHORT_FALLBACK_SECONDS
from tests.e2e.locks import HOLDER, OVER_SECONDS, QueuedLock
from tests.e2e.together import together

QUEUE: Final = "QueuePatient"
POLLING: Final = "Waits"
TURNS: Final = "QueueShares"

# Turns are taken in the order of queueing.

NUMBER = 10
MOST_STARTING = 4  # a function's cold start takes a second of a processor


def queued(line: QueuedLock, machine: str, number: int) -> list[str]:
    """So many workflows in the queue, the oldest first."""
    for started in range(number):
        line.start(machine)
        line.await_waiters(started - MOST_STARTING + 1)
    line.await_waiters(number)
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


def complete(deployment: Deployment, task_token: str, answer: object) -> None:
    workflows = deployment.aws.client("stepfunctions")
    workflows.send_task_success(taskToken=task_token, output=json.dumps(answer))


def waiting_token(line: QueuedLock, execution: str) -> str:
    waiters = line.deployment.table.query_all(oldest_waiters(line.lock))
    [token] = [w[TASK_TOKEN]["S"] for w in waiters if w[EXECUTION_ARN]["S"] == execution]
    return str(token)


def heartbeat_tokens(deployment: Deployment, execution: str) -> list[str]:
    query = claims_of(execution, before=ReapStage.SECOND_PASS_DONE)
    claims = deployment.table.query_all(query)
    tokens = [read_claim(execution, claim).task_token for claim in claims]
    return [token for token in tokens if token is not None]


@pytest.mark.parametrize("attack", [grant_of_another_lock, made_up_grant])
def test_a_forged_answer_lets_no_one_in_and_the_waiter_waits_on(
    deployment: Deployment, attack: Attack
) -> None:
    line = QueuedLock(deployment)
    execution = line.join(QUEUE)
    attack(deployment, execution, waiting_token(line, execution))
    wait_until(lambda: len(deployment.acquires(execution)) > 1)
    wait_until(lambda: line.waiters() == [execution])
    released_at = line.release()
    assert line.began(execution) > released_at
    assert deployment.failed_calls(execution) == ["States.QueryEvaluationError"]


def test_control_without_the_check_a_forged_answer_lets_the_waiter_in_beside_the_holder(
    deployment: Deployment,
) -> None:
    line = QueuedLock(deployment)
    execution = line.join("QueueBelieving")
    made_up_grant(deployment, execution, waiting_token(line, execution))
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
    wait_until(lambda: heartbeat_tokens(deployment, execution) != [])
    [token] = heartbeat_tokens(deployment, execution)
    complete(deployment, token, {})
    forged_at = time.time()
    assert deployment.ended(execution).status == "SUCCEEDED"
    later = deployment.entries(execution, "Guard: Heartbeat", after=forged_at)
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
    assert deployment.acquires(second, after=released_at) == []


@together
@pytest.mark.parametrize("requests", [2, math.inf], ids=["before the hand-off", "before the push"])
def test_a_releaser_that_is_killed_delays_the_queue_by_its_lease_and_a_poll(
    deployment: Deployment, requests: float
) -> None:
    line = QueuedLock(deployment)
    execution = line.join(TURNS)
    deployment.invoke("Heartbeat", lock_name=line.lock, owner_id=line.owner_id, lease_seconds=3)
    free_at = time.time()  # Before: the waiter may ask right after the hand-off.
    line.release_killed(after_requests=requests)
    if requests == math.inf:
        assert (line.holders(), line.waiters()) == ([execution], [])
    else:
        assert (line.holders(), line.waiters()) == ([HOLDER], [execution])
        free_at = line.holder().expires_at_ms / 1000 + OVER_SECONDS
    assert line.began(execution) > free_at
    assert len(deployment.acquires(execution, after=free_at)) == 1


@together
def test_control_without_a_fallback_poll_it_waits_on(deployment: Deployment) -> None:
    line = QueuedLock(deployment)
    execution = line.join(QUEUE)
    released_at = time.time()
    line.release_killed(after_requests=math.inf)
    assert (line.holders(), line.waiters()) == ([execution], [])
    time.sleep(SHORT_FALLBACK_SECONDS + 5)  # the others have asked by then
    assert deployment.is_running(execution)
    assert deployment.acquires(execution, after=released_at) == []
    deployment.stop(execution)


# A wait ends within two seconds of `max_wait`, and leaves nothing behind.


@together
@pytest.mark.parametrize("seconds", GIVES_UP_SECONDS)
def test_a_wait_ends_with_its_error_within_two_seconds_of_max_wait(
    deployment: Deployment, seconds: int
) -> None:
    line = QueuedLock(deployment)
    execution = line.join(f"QueueGivesUp{seconds}")
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    assert f"not granted within max_wait of {seconds} s" in (ended.cause or "")
    failed = set(deployment.failed_calls(execution))
    assert failed <= {"States.Timeout"}, "else the wait begins again"
    assert abs(deployment.waited(execution) - seconds) <= 2
    assert (line.waiters(), line.holders()) == ([], [HOLDER])


@together
def test_a_grant_that_comes_while_giving_up_is_given_back(deployment: Deployment) -> None:
    line = QueuedLock(deployment)
    execution = line.join(f"QueueGivesUp{GIVES_UP_SECONDS[0]}")
    line.release_untold()
    assert line.holders() == [execution]
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    assert (line.holders(), line.waiters()) == ([], [])


# A guard in the queue costs the same however long it waits; polling does not.

WAITS_SECONDS: Final = 20


def cost_of_a_wait(deployment: Deployment, machine: str) -> tuple[int, int, int]:
    """Transitions, calls, and how often the lock was asked for."""
    line = QueuedLock(deployment)
    execution = line.join(machine)
    time.sleep(WAITS_SECONDS)  # the length of this wait is what is tested
    line.release()
    assert deployment.ended(execution).status == "SUCCEEDED"
    tries = deployment.states_entered(execution).count("Guard: Acquire")
    return deployment.transitions(execution), deployment.calls(execution), tries


@together
def test_waiting_in_the_queue_costs_no_transition_and_no_call(deployment: Deployment) -> None:
    assert cost_of_a_wait(deployment, QUEUE) == (4, 3, 1)


@together
def test_waiting_by_polling_costs_three_transitions_and_a_call_a_try(
    deployment: Deployment,
) -> None:
    transitions, calls, tries = cost_of_a_wait(deployment, POLLING)
    assert tries > 2
    assert (transitions, calls) == (5 + 3 * (tries - 1), 3 + tries - 1)
