"""Workflows share locks, hold two at once, and supersede each other, beside Python clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from fairlock import LockClient, LockWaitTimeout
from tests.e2e.conftest import Tell
from tests.e2e.deployment import Deployment, most_inside, wait_until
from tests.e2e.locks import CALLING
from tests.e2e.together import together
from tests.e2e.turns.stack import FALLBACK_SECONDS, GIVES_UP_SECONDS


def two_names() -> tuple[str, str]:
    """Two locks that no other test has. The last letters are in another order in UTF-16."""
    of_this_test = uuid.uuid4()
    return f"{of_this_test}/\uff5e", f"{of_this_test}/😀"


@pytest.fixture
def lock() -> str:
    return two_names()[0]


def client_of(deployment: Deployment) -> LockClient:
    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    return LockClient(deployment.table_name, client=dynamodb, stepfunctions=workflows)


@pytest.fixture
def locks(deployment: Deployment) -> Iterator[LockClient]:
    with client_of(deployment) as locks:
        yield locks


def test_workflows_and_a_client_read_at_the_same_time_and_a_writer_is_alone(
    deployment: Deployment, locks: LockClient, lock: str
) -> None:
    with locks.hold(lock, shared=True):
        read = deployment.run("TurnReads", {"lock": lock, "writes": False, "return": 1})
        assert (read.status, read.output) == ("SUCCEEDED", 1)
        writer = deployment.start("TurnReads", {"lock": lock, "writes": True, "return": 2})
        wait_until(lambda: deployment.queue_length(lock) == 1)
        assert locks.try_acquire(lock, shared=True) is None, "the writer waits"
        late = deployment.start("TurnReads", {"lock": lock, "writes": False, "return": 3})
        wait_until(lambda: deployment.queue_length(lock) == 2)
    assert [deployment.ended(each).output for each in (writer, late)] == [2, 3]
    assert deployment.held(lock) == 0


def test_workflows_and_a_client_with_crossed_lists_take_turns_and_leave_nothing(
    deployment: Deployment, locks: LockClient
) -> None:
    names = two_names()
    lists = [names, names[::-1]] * 2
    with locks.hold_all(names[::-1], max_wait=60):
        started = [
            deployment.start("TurnBoth", {"one": one, "other": other, "sleep": 0.3})
            for one, other in lists
        ]
        wait_until(lambda: deployment.queue_length(names[0]) == len(lists))
        assert deployment.queue_length(names[1]) == 0, "they wait for the first of the order"
    ended = [deployment.ended(execution) for execution in started]
    assert [each.status for each in ended] == ["SUCCEEDED"] * len(lists)
    assert most_inside(each.output for each in ended) == 1
    assert [deployment.held(name) for name in names] == [0, 0]


@together
def test_if_the_second_is_not_free_in_time_both_are_and_the_error_names_the_second(
    deployment: Deployment,
) -> None:
    first, second = two_names()
    with client_of(deployment) as locks, locks.hold(second):
        with CALLING:
            execution = deployment.start("TurnBothFails", {"one": second, "other": first})
            wait_until(
                lambda: (
                    deployment.holders(first) == [execution] or not deployment.is_running(execution)
                )
            )
        failed = deployment.ended(execution)
        assert (failed.status, failed.error) == ("FAILED", "LockWaitTimeout")
        told = f"{second} was not granted within max_wait of {GIVES_UP_SECONDS} s"
        assert told in (failed.cause or "")
        assert (deployment.held(first), deployment.queue_length(second)) == (0, 0)
    assert deployment.held(second) == 0


def test_a_pause_holds_a_workflow_and_a_client_back_until_resume(
    deployment: Deployment, locks: LockClient, lock: str
) -> None:
    locks.pause(lock, reason="freeze until Monday")
    with pytest.raises(LockWaitTimeout, match="freeze until Monday"):
        locks.acquire(lock, max_wait=0)
    execution = deployment.start("NewestQueue", {"lock": lock, "version": 1})
    wait_until(lambda: deployment.queue_length(lock) == 1)
    locks.resume(lock)
    assert deployment.ended(execution).output == "ran"


# Deployments wait, and then one more: it runs, and the others learn that they need not.

WAITING = 4
NEWEST = 1_000


def all_wait(deployment: Deployment, lock: str) -> list[str]:
    """Deployments that wait, the newest last, in an order that is not that of their versions."""
    arns: list[str] = []
    for version in (*range(WAITING, 0, -1), NEWEST):
        arns.append(deployment.start("NewestQueue", {"lock": lock, "version": version}))
        wait_until(lambda: deployment.queue_length(lock) == len(arns))
    return arns


def test_the_newest_runs_and_all_others_are_told_that_they_need_not(
    deployment: Deployment, locks: LockClient, lock: str, tell: Tell
) -> None:
    holder = locks.acquire(lock)
    arns = all_wait(deployment, lock)
    began = time.time()
    holder.release()
    outputs = [deployment.ended(arn).output for arn in arns]
    assert outputs == ["superseded"] * WAITING + ["ran"]
    assert (deployment.waiters(lock), deployment.state(lock).newest) == ([], NEWEST)
    entered = [deployment.entered(arn, "Guard: Acquired?") - began for arn in arns[:-1]]
    tell(f"superseded, fallback period {FALLBACK_SECONDS} s: until they learn it", entered)


def test_a_client_and_workflows_supersede_each_other(
    deployment: Deployment, locks: LockClient, lock: str
) -> None:
    older = {"lock": lock, "version": 1}
    with locks.hold(lock, only_newest=5):
        assert deployment.run("NewestQueue", older).output == "superseded"
        assert deployment.run("NewestPoll", older).output == "superseded"
        failed = deployment.run("NewestFails", older)
    assert (failed.status, failed.error) == ("FAILED", "Superseded")
    assert failed.cause == f"lock {lock}: version 1 is superseded, 5 was granted the lock"
    assert deployment.run("NewestPoll", {"lock": lock, "version": 6}).output == "ran"
    assert (deployment.state(lock).newest, deployment.state(lock).held) == (6, 0)


def test_by_time_the_later_execution_supersedes(
    deployment: Deployment, locks: LockClient, lock: str
) -> None:
    with locks.hold(lock):
        first = deployment.start("NewestByTime", {"lock": lock})
        wait_until(lambda: deployment.queue_length(lock) == 1)
        second = deployment.start("NewestByTime", {"lock": lock})
        wait_until(lambda: deployment.queue_length(lock) == 2)
    outputs = [deployment.ended(arn).output for arn in (first, second)]
    assert outputs == ["superseded", "ran"]
