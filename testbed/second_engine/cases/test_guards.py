"""What leaves a guard, and how many are inside, where no suite of tests/e2e looks."""

from __future__ import annotations

import uuid

import pytest

from testbed.second_engine.cases.stack import TASK_SECONDS
from tests.e2e.deployment import Deployment, most_inside

BOUND_SECONDS = 80
STAY_SECONDS = 8
"""Longer than a busy machine takes to let five in."""


def test_a_limit_of_five_lets_five_in_and_never_more(deployment: Deployment) -> None:
    lock = {"lock": f"five/{uuid.uuid4()}", "seconds": STAY_SECONDS}
    executions = [deployment.start("FiveInside", lock) for _ in range(8)]
    ended = [deployment.ended(execution, seconds=BOUND_SECONDS) for execution in executions]
    assert [each.status for each in ended] == ["SUCCEEDED"] * len(executions)
    assert most_inside(each.output for each in ended) == 5
    assert deployment.held(lock["lock"]) == 0  # type: ignore[arg-type]  # the lock's name


def timed_out(deployment: Deployment, machine: str) -> tuple[str, str]:
    """An execution whose guarded task took too long, at its end, and its lock."""
    lock = f"timeout/{uuid.uuid4()}"
    execution = deployment.start(machine, {"lock": lock, "sleep": 4 * TASK_SECONDS})
    deployment.ended(execution, seconds=BOUND_SECONDS)
    return execution, lock


@pytest.mark.parametrize("machine", ["TaskTimesOut", "KeptAliveTaskTimesOut"])
def test_after_the_timeout_of_a_task_the_lock_is_released(
    deployment: Deployment, machine: str
) -> None:
    execution, lock = timed_out(deployment, machine)
    assert "Guard: Release after error" in deployment.states_entered(execution)
    assert deployment.held(lock) == 0


@pytest.mark.parametrize("machine", ["TaskTimesOut", "KeptAliveTaskTimesOut"])
def test_the_timeout_of_a_task_leaves_the_guard_by_its_own_name(
    deployment: Deployment, machine: str
) -> None:
    execution, _ = timed_out(deployment, machine)
    ended = deployment.ended(execution)
    assert (ended.status, ended.output) == ("SUCCEEDED", "States.Timeout")


def test_the_result_of_a_parallel_leaves_the_guard(deployment: Deployment) -> None:
    ended = deployment.run("ParallelInside", {"a": 1})
    assert (ended.status, ended.output) == ("SUCCEEDED", [{"Left": {"a": 1}}, {"Right": {"a": 1}}])
