"""Turns are taken in the order of queueing, by as many as the limit says."""

from __future__ import annotations

import uuid

import pytest

from tests.e2e.deployment import Deployment, Ended
from tests.e2e.guard.test_waiting import overlaps
from tests.e2e.queue.queued_lock import QueuedLock

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
