"""Who comes next in the queue, and whose answers count."""

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
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.guard.test_guard import overlaps
from tests.e2e.queue.queued_lock import HOLDER, QueuedLock
from tests.e2e.queue.stack import KEEP_ALIVE_SECONDS

# Turns are taken in the order of queueing, by as many as the limit says.

MOST_STARTING = 4  # a function's cold start takes a second of a processor


def queued(line: QueuedLock, machine: str, number: int) -> list[str]:
    """So many workflows in the queue, the oldest first."""
    for started in range(number):
        line.start(machine)
        line.await_waiters(lambda waiters, least=started - MOST_STARTING: len(waiters) > least)  # type: ignore[misc]  # the default binds this round's
    line.await_waiters(lambda waiters: len(waiters) == number)
    return line.waiters()


@pytest.mark.parametrize("number", [10, 50])
def test_each_of_the_waiting_is_granted_once_in_the_order_of_queueing(
    deployment: Deployment, number: int
) -> None:
    line = QueuedLock(deployment)
    executions = queued(line, "QueuePatient", number)
    line.release()
    spans = {execution: deployment.ended(execution).output for execution in executions}
    assert sorted(spans, key=lambda execution: spans[execution]["began"]) == executions
    assert overlaps(list(spans.values())) == 0
    assert {deployment.transitions(execution) for execution in executions} == {4}
    assert (line.holders(), line.waiters()) == ([], [])


def test_a_limit_of_three_lets_three_in_and_never_more(deployment: Deployment) -> None:
    lock = {"lock": str(uuid.uuid4()), "limit": 3, "sleep": 2}
    executions = [deployment.start("QueueTurns", lock) for _ in range(9)]
    spans = [deployment.ended(execution).output for execution in executions]
    inside = [
        sum(other["began"] <= span["began"] < other["ended"] for other in spans) for span in spans
    ]
    assert max(inside) == 3


def test_iterations_of_a_map_take_turns(deployment: Deployment) -> None:
    ended = deployment.run("QueueMap", [{"sleep": 0.3}] * 3)
    assert ended.status == "SUCCEEDED"
    assert len(ended.output) == 3
    assert overlaps(ended.output) == 0


def test_nested_guards_hold_two_locks_and_release_both(deployment: Deployment) -> None:
    lock = str(uuid.uuid4())
    ended = deployment.run("QueueNested", {"lock": lock, "return": 1})
    assert ended == Ended(status="SUCCEEDED", output=1)
    assert (deployment.held(f"outer/{lock}"), deployment.held(f"inner/{lock}")) == (0, 0)


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
    execution = line.join("QueuePatient")
    attack(deployment, execution, waiting_token(line, execution))
    wait_until(lambda: len(deployment.timeline(execution).calls("Guard: Acquire")) > 1)
    line.await_waiters(lambda waiters: list(waiters) == [execution])
    released_at = line.release()
    assert line.began(execution) > released_at
    assert deployment.failed_calls(execution) == ["States.QueryEvaluationError"]


@every_attack
def test_without_the_check_a_forged_answer_lets_the_waiter_in_beside_the_holder(
    deployment: Deployment, attack: Attack
) -> None:
    line = QueuedLock(deployment)
    execution = line.join("QueueBelieving")
    attack(deployment, execution, waiting_token(line, execution))
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert line.holders() == [HOLDER]


@pytest.mark.parametrize(
    ("machine", "goes_on"), [("QueueKeptAlive", True), ("QueueKeptAliveBelieving", False)]
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
