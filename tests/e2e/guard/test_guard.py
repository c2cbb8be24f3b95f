"""A guard from outside, in every form and every way to wait: data, errors, turns, giving up."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment, Ended, most_inside, wait_until
from tests.e2e.guard.stack import ELSEWHERE_SECONDS
from tests.e2e.locks import HOLDER, QueuedLock
from tests.e2e.together import together

AT_ONCE = 4
"""Each is an execution environment of three functions."""
EVERY = ("PollFlatPath", "QueueFlat", "KeptAliveChainPath", "SkipFlatPath", "ExpressFlat")


def run(deployment: Deployment, machine: str, value: object) -> Ended:
    is_express = machine.startswith("Express")
    return (deployment.run_express if is_express else deployment.run)(machine, value)


def run_all(deployment: Deployment, machine: str, values: Sequence[object]) -> list[Ended]:
    """Runs a machine once for each input, a few at a time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda value: run(deployment, machine, value), values))


def lock_of(execution_arn: str, prefix: str = "form") -> str:
    """The lock that most forms use: one of its own for each execution."""
    return f"{prefix}/{execution_arn.rsplit(':', 1)[1]}"


# What enters a guard reaches the task, and what the task returns leaves it.

VALUES = [[7], None, {"a": [1, {"b": None}], "text": "ä€"}]
"""Easily unpacked once too often, or left out. Of all others unit/cdk/test_guard_expressions.py."""


@pytest.mark.parametrize("machine", EVERY)
def test_any_json_passes_unchanged(deployment: Deployment, machine: str) -> None:
    assert run_all(deployment, machine, VALUES) == [Ended("SUCCEEDED", each) for each in VALUES]


def test_the_task_is_given_the_fencing_token_of_its_grant(deployment: Deployment) -> None:
    """In a branch beside heartbeats; in a plain guard see smoke/test_table.py."""
    first, second = (deployment.run("KeptAliveToken", {}).output["token"] for _ in range(2))
    assert isinstance(first, int)
    assert 1_700_000_000_000_000 < first < second  # the seed is the epoch in microseconds


# An error leaves the guard as it is, after the lock was released.

FAILING = {"raise": "CardDeclined", "message": "no funds"}


@pytest.mark.parametrize("machine", [*EVERY, "KeptAliveDecides"])
def test_the_tasks_error_keeps_its_name_and_cause(deployment: Deployment, machine: str) -> None:
    if machine.startswith("Express"):
        ended = deployment.run_express(machine, FAILING)
    else:
        execution = deployment.start(machine, FAILING)
        ended = deployment.ended(execution)
        # The reaper hears of the failure, too: that the lock is free does not say by whom.
        assert "Guard: Release after error" in deployment.states_entered(execution)
        assert deployment.held(lock_of(execution)) == 0
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"


@pytest.mark.parametrize("way", ["Poll", "KeptAlive"])
def test_a_chain_may_succeed_fail_and_handle_errors_in_the_guard(
    deployment: Deployment, way: str
) -> None:
    ways = [{"way": "succeed"}, {"way": "fail"}, {"way": "work", "raise": "Known"}]
    assert run_all(deployment, f"{way}Decides", ways) == [
        Ended(status="SUCCEEDED", output={"after": "succeeded"}),
        Ended(status="FAILED", error="Refused", cause="by choice"),
        Ended(status="SUCCEEDED", output={"after": "handled"}),
    ]


# Taking turns.


def test_machines_of_every_way_share_a_lock_that_no_one_has_used(deployment: Deployment) -> None:
    lock = {"lock": f"shared/{uuid.uuid4()}", "seconds": 1}
    ways = ("Poll", "Queue", "KeptAlive") * 2
    executions = [deployment.start(f"{way}Shares", lock) for way in ways]
    assert most_inside(deployment.ended(execution).output for execution in executions) == 1


def test_nested_guards_hold_and_release_two_locks(deployment: Deployment, tmp_path: Path) -> None:
    lock, gate = str(uuid.uuid4()), tmp_path / "gate"
    execution = deployment.start("QueueNested", {"lock": lock, "until": str(gate)})
    wait_until(lambda: "Work" in deployment.states_entered(execution))
    names = (f"outer/{lock}", f"inner/{lock}")
    assert [deployment.holders(name) for name in names] == [[execution], [execution]]
    gate.touch()
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert [deployment.held(name) for name in names] == [0, 0]


# Giving up.


@together
def test_a_wait_that_is_over_fails_with_an_error_of_its_own(deployment: Deployment) -> None:
    taken = QueuedLock(deployment)
    execution = taken.start("GivesUp")
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    told = re.fullmatch(
        rf"lock {taken.lock} was not granted within max_wait of 2 s "
        rf"\(waited (\d+) s\), held by {HOLDER}",
        ended.cause or "",
    )
    assert told, ended.cause
    assert 2 <= int(told[1]) <= deployment.waited(execution, until="Guard: Timed out") + 1
    assert taken.held() == 1


@together
@pytest.mark.parametrize("way", ["Poll", "KeptAlive"])
def test_a_wait_that_is_over_can_go_another_way_with_the_input_untouched(
    deployment: Deployment, way: str
) -> None:
    taken = QueuedLock(deployment)
    value = {"lock": taken.lock, "a": [1]}
    execution = deployment.start(f"{way}Elsewhere", value)
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"later": value})
    assert deployment.seconds(execution) >= ELSEWHERE_SECONDS
    assert (taken.holders(), taken.waiters()) == ([HOLDER], [])


def test_a_mistake_in_the_request_fails_at_once_and_is_not_repeated(
    deployment: Deployment,
) -> None:
    execution = deployment.start("QueueShares", {"lock": "mistaken", "limit": 101})
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "limit: must be a whole number from 1 to 100" in (ended.cause or "")
    acquires = deployment.states_entered(execution).count("Guard: Acquire")
    assert (acquires, deployment.transitions(execution)) == (1, 4)


def test_a_busy_lock_is_skipped_and_its_queue_left_alone(deployment: Deployment) -> None:
    """By a guard whose `max_wait` is zero."""
    taken = QueuedLock(deployment)
    value = {"lock": taken.lock, "a": [1]}
    failing = deployment.start("SkipWaits", value)
    ended = deployment.ended(failing)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    assert (ended.cause or "").endswith(f"held by {HOLDER}")
    assert deployment.transitions(failing) == 5

    assert taken.ask(queue=True)["reason"] == "QUEUED"
    going_elsewhere = deployment.start("SkipElsewhere", value)
    assert deployment.ended(going_elsewhere) == Ended("SUCCEEDED", output={"later": value})
    assert deployment.states_entered(going_elsewhere) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Guard: Give up",
        "Later",
    ]
    assert deployment.calls(going_elsewhere) == 2
    assert (deployment.queue_length(taken.lock), taken.holders()) == (1, [HOLDER])
    free = {"lock": f"free/{uuid.uuid4()}", "return": 1}
    assert deployment.run("SkipElsewhere", free).output == {"after": 1}


# What the guard does when calls of the lock service go wrong.


@pytest.mark.parametrize(
    ("way", "values"),
    [
        ("Poll", [{"a": 1}, [7]]),
        ("KeptAlive", [{"token": 1_900_000_000_000_001, "half": 0.5}, [7], "text"]),
    ],
)
def test_a_release_that_fails_does_not_replace_the_result(
    deployment: Deployment, way: str, values: list[object]
) -> None:
    machine = f"{way}NotReleased"
    for value in values:
        execution = deployment.start(machine, value)
        assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": value})
        assert deployment.states_entered(execution)[-2:] == ["Guard: Not released", "After"]
        assert deployment.held(lock_of(execution, machine)) == 1  # until the lease ends it


@pytest.mark.parametrize("way", ["Poll", "KeptAlive"])
def test_a_release_that_fails_does_not_replace_the_error(deployment: Deployment, way: str) -> None:
    machine = f"{way}NotReleased"
    execution = deployment.start(machine, FAILING)
    assert deployment.ended(execution).error == "CardDeclined"
    assert "Guard: Release after error" in deployment.states_entered(execution)
    # The reaper gets an event of the failure, and may release the lock first.
    wait_until(lambda: deployment.held(lock_of(execution, machine)) == 0)


def test_a_lost_reply_does_not_make_the_workflow_wait_for_itself(deployment: Deployment) -> None:
    execution = deployment.start("LostReply", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    assert deployment.failed_calls(execution) == ["ConnectionError"]
    states = deployment.states_entered(execution)
    assert "Guard: Wait" not in states
    assert states.count("Guard: Enter") == 1
    assert deployment.held(lock_of(execution, "LostReply")) == 0


def test_a_grant_whose_call_failed_for_good_is_given_back(deployment: Deployment) -> None:
    execution = deployment.start("GrantedAndFailed", {})
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "granted, but who knows" in (ended.cause or "")
    assert "Work" not in deployment.states_entered(execution)
    assert deployment.held(lock_of(execution, "GrantedAndFailed")) == 0


def test_an_acquisition_that_was_released_meanwhile_begins_again(deployment: Deployment) -> None:
    execution = deployment.start("ReleasedMeanwhile", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    states = deployment.states_entered(execution)
    assert (states.count("Guard: Enter"), states.count("Guard: Acquire")) == (1, 2)
    assert deployment.held(lock_of(execution, "ReleasedMeanwhile")) == 0
