"""Workflows share locks, and hold two at once, beside each other and beside Python clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlock import LockClient
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.guard.test_waiting import overlaps
from tests.e2e.turns.stack import GIVES_UP_SECONDS


@pytest.fixture
def names() -> tuple[str, str]:
    """Two locks that no other test has. The last letters are in another order in UTF-16."""
    of_this_test = uuid.uuid4()
    return f"{of_this_test}/\uff5e", f"{of_this_test}/😀"


@pytest.fixture
def locks(deployment: Deployment) -> Iterator[LockClient]:
    dynamodb, workflows = (deployment.aws.client(name) for name in ("dynamodb", "stepfunctions"))
    with LockClient(deployment.table_name, client=dynamodb, stepfunctions=workflows) as locks:
        yield locks


def test_workflows_and_a_client_read_at_the_same_time_and_a_writer_is_alone(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    lock = names[0]
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


@pytest.mark.parametrize("form", ["TurnBoth", "TurnBothPolls"])
def test_workflows_with_crossed_lists_take_turns_and_leave_nothing(
    deployment: Deployment, names: tuple[str, str], form: str
) -> None:
    lists = [names, names[::-1]] * 2
    inputs = [{"one": one, "other": other, "sleep": 0.3} for one, other in lists]
    with ThreadPoolExecutor(len(inputs)) as pool:
        ended = list(pool.map(lambda each: deployment.run(form, each), inputs))
    assert [each.status for each in ended] == ["SUCCEEDED"] * len(inputs)
    assert overlaps([each.output for each in ended]) == 0
    assert [deployment.held(name) for name in names] == [0, 0]


def test_a_client_with_the_crossed_list_takes_turns_with_them(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    with locks.hold_all(names[::-1], max_wait=60):
        given = {"one": names[0], "other": names[1], "return": 1}
        execution = deployment.start("TurnBoth", given)
        wait_until(lambda: deployment.queue_length(names[0]) == 1)
        assert deployment.queue_length(names[1]) == 0, "it waits for the first of the order"
    assert deployment.ended(execution).output == 1


def test_if_the_second_is_not_free_in_time_both_are_and_the_error_names_the_second(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    first, second = names
    given = {"one": second, "other": first}
    with locks.hold(second):
        elsewhere = deployment.start("TurnBothGivesUp", given)
        fails = deployment.start("TurnBothFails", given)
        assert deployment.ended(elsewhere).output == {"later": given}
        failed = deployment.ended(fails)
        assert (failed.status, failed.error) == ("FAILED", "LockWaitTimeout")
        told = f"was not granted within max_wait of {GIVES_UP_SECONDS} s"
        assert told in (failed.cause or "")
        assert deployment.held(first) == 0
        assert deployment.queue_length(second) == 0
    assert deployment.held(second) == 0


def test_both_leases_are_renewed_beside_the_work(
    deployment: Deployment, locks: LockClient, names: tuple[str, str]
) -> None:
    given = {"one": names[0], "other": names[1], "sleep": 9}
    execution = deployment.start("TurnBothKeptAlive", given)
    wait_until(lambda: bool((lock := locks.describe(names[1])) and lock.holders))
    assert locks.try_acquire(names[0]) is None
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert [deployment.held(name) for name in names] == [0, 0]
    assert "Guard (2): Heartbeat" in deployment.states_entered(execution)
