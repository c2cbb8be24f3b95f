"""A guard with keep_alive passes on data and errors as one without it does, and takes turns."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.deployment import Deployment, Ended
from tests.e2e.guard.test_guard import VALUES
from tests.e2e.known_failures.lock import most_inside
from tests.e2e.lifetimes.contested_lock import ContestedLock

AT_ONCE = 4
"""Each is an execution environment of three functions."""


def run_all(deployment: Deployment, machine: str, inputs: list[dict[str, Any]]) -> list[Ended]:
    """Runs a machine once for each input, each with a lock of its own unless it names one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        locked = [{"lock": f"kept-alive/{uuid.uuid4()}", **each} for each in inputs]
        return list(pool.map(lambda each: deployment.run(machine, each), locked))


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "PlainTask"])
def test_what_the_task_returns_leaves_the_guard_unchanged(
    deployment: Deployment, machine: str
) -> None:
    returned = run_all(deployment, machine, [{"return": value} for value in VALUES])
    assert returned == [Ended(status="SUCCEEDED", output=value) for value in VALUES]


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "PlainTask"])
def test_what_enters_the_guard_reaches_the_task_unchanged(
    deployment: Deployment, machine: str
) -> None:
    locks = [ContestedLock(deployment) for _ in VALUES]
    inputs = [
        {"lock": contested.lock, "given": value}
        for contested, value in zip(locks, VALUES, strict=True)
    ]
    echoed = run_all(deployment, machine, inputs)
    assert echoed == [Ended(status="SUCCEEDED", output=each) for each in inputs]
    assert [contested.holders() for contested in locks] == [[]] * len(locks)


@pytest.mark.parametrize("machine", ["KeepAlive", "KeepAlivePath", "KeepAliveDecides", "PlainTask"])
def test_the_tasks_error_keeps_its_name_and_cause_and_the_lock_is_free(
    deployment: Deployment, machine: str
) -> None:
    contested = ContestedLock(deployment)
    failing = {"lock": contested.lock, "raise": "CardDeclined", "message": "no funds"}
    [ended] = run_all(deployment, machine, [failing])
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"
    assert contested.holders() == []


def test_a_chain_may_succeed_fail_and_handle_errors_in_the_guard(deployment: Deployment) -> None:
    ways = [{"way": "succeed"}, {"way": "fail"}, {"raise": "Known"}]
    assert run_all(deployment, "KeepAliveDecides", ways) == [
        Ended(status="SUCCEEDED", output={"after": "succeeded"}),
        Ended(status="FAILED", error="Refused", cause="by choice"),
        Ended(status="SUCCEEDED", output={"after": "handled"}),
    ]


def test_the_task_is_given_the_fencing_token_of_its_grant(deployment: Deployment) -> None:
    [ended] = run_all(deployment, "KeepAliveToken", [{}])
    assert ended.output["token"] > 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("machine", "limit"), [("KeepAliveChain", 3), ("KeepAlivePoll", 1), ("PlainPoll", 1)]
)
def test_no_more_are_inside_than_the_limit(
    deployment: Deployment, machine: str, limit: int
) -> None:
    lock = {"lock": f"kept-alive/{uuid.uuid4()}", "limit": limit, "seconds": 1}
    ended = run_all(deployment, machine, [lock] * (AT_ONCE if limit > 1 else 2))
    assert most_inside(each.output for each in ended) == limit


@pytest.mark.parametrize("machine", ["KeepAliveMap", "PlainMap"])
def test_iterations_of_a_map_take_turns(deployment: Deployment, machine: str) -> None:
    [ended] = run_all(deployment, machine, [{"seconds": 1}])
    assert (len(ended.output), most_inside(ended.output)) == (3, 1)


def test_nested_guards_hold_two_locks_and_release_both(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    locks = [f"outer/{contested.lock}", f"inner/{contested.lock}"]
    execution = contested.start("KeepAliveNested", seconds=2)
    for lock in locks:
        contested.await_holder(execution, lock=lock)
    assert contested.ended(execution).status == "SUCCEEDED"
    assert [contested.holders(lock) for lock in locks] == [[], []]


def test_a_wait_that_is_over_goes_another_way_with_its_input(deployment: Deployment) -> None:
    contested = ContestedLock(deployment)
    contested.ask(owner_name="a test")
    execution = contested.start("KeepAliveElsewhere", seconds=0)
    given = {"later": {"lock": contested.lock, "seconds": 0}}
    assert contested.ended(execution) == Ended(status="SUCCEEDED", output=given)
    assert (contested.holders(), contested.waiters()) == (["a test"], [])
