"""What the known ways to lock get wrong. That a guard does not, tests/e2e/guard shows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fairlock.protocol.schema import TTL_ATTRIBUTE, lock_key
from tests.e2e.deployment import Deployment, Json, most_inside, wait_until
from tests.e2e.lifetimes.contested_lock import QUICK_SECONDS, ContestedLock
from tests.e2e.scenario_runs import Scenario, ScenarioRuns, begun

MOST_TRIES = 5
"""For those who are to be inside at once, and whom a busy machine may have begun one by one."""
OVERRUN_SECONDS = 15
"""Longer than lease and clock tolerance, by several questions also on a busy machine."""


@pytest.fixture
def lock(deployment: Deployment) -> ContestedLock:
    return ContestedLock(deployment)


# What takes long is begun before the first test.


def waits_for_itself(deployment: Deployment) -> tuple[bool, list[str]]:
    """The reply is lost, and the repeated call is another owner's."""
    lock = ContestedLock(deployment)
    execution = lock.start("LostReplyNewOwner", seconds=0)
    wait_until(lambda: deployment.calls(execution) > 2, pause_seconds=QUICK_SECONDS)
    is_holder = lock.holders() == [execution] and deployment.is_running(execution)
    states = deployment.states_entered(execution)
    deployment.stop(execution)
    return is_holder, states


def without_an_end(deployment: Deployment) -> int:
    """How often a chain has asked for a lock that stays taken, since it should have given up."""
    lock = ContestedLock(deployment)
    lock.ask(lease_seconds=600)
    execution = lock.start("Chain", seconds=0)
    wait_until(lambda: deployment.calls(execution) > 5, pause_seconds=QUICK_SECONDS)
    assert deployment.is_running(execution)
    deployment.stop(execution)
    return deployment.states_entered(execution).count("Acquired?")


def robbed(deployment: Deployment) -> Json:
    """A holder of whose execution no one is told; again if a busy machine has asked too late."""
    for seconds in (OVERRUN_SECONDS, 3 * OVERRUN_SECONDS):
        lock = ContestedLock(deployment)
        execution = lock.start("Anonymous", seconds=seconds)
        wait_until(lambda lock=lock: lock.holders() != [], pause_seconds=QUICK_SECONDS)  # type: ignore[misc]  # the default binds this one
        lock.ask_until_granted()
        granted_at_ms = 1000 * time.time()
        output: Json = lock.ended(execution).output
        if granted_at_ms < output["work"]["ended_ms"]:
            break
    return {"granted_at_ms": granted_at_ms, **output}


SCENARIOS: dict[str, list[Scenario]] = {
    scenario.__name__: [scenario] for scenario in (robbed, waits_for_itself, without_an_end)
}


@pytest.fixture(scope="module", autouse=True)
def runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    with begun(deployment, SCENARIOS) as runs:
        yield runs


# What leaves a guard, and in what state the lock is then.


@pytest.mark.parametrize(("machine", "is_free"), [("CaughtGuard", True), ("CaughtChain", False)])
@pytest.mark.parametrize(
    ("inputs", "error"),
    [({"raise": "CardDeclined"}, "CardDeclined"), ({"sleep": 3}, "States.Timeout")],
)
def test_a_chain_that_catches_nothing_leaks_its_permit_and_a_guard_does_not(
    lock: ContestedLock, machine: str, inputs: Json, error: str, *, is_free: bool
) -> None:
    """Asked before the execution goes on, and so before the reaper hears of its end."""
    ended = lock.ended(lock.start(machine, **inputs))
    assert (ended.status, ended.output["error"]) == ("SUCCEEDED", error)
    assert ended.output["next_acquire"]["acquired"] is is_free


def test_a_chain_that_says_nothing_about_its_output_returns_the_reply_of_the_release(
    lock: ContestedLock,
) -> None:
    output = lock.ended(lock.start("OutputReplaced", **{"return": {"charged": [1, None]}})).output
    assert "charged" not in output
    assert output["Payload"]["released"] is True


# One at a time.


def test_without_a_guard_two_executions_are_inside_at_once(lock: ContestedLock) -> None:
    def inside() -> int:
        executions = [lock.start("Unguarded", seconds=1) for _ in range(2)]
        return most_inside(lock.ended(execution).output for execution in executions)

    assert any(inside() == 2 for _ in range(MOST_TRIES))


def test_with_a_lock_each_two_guarded_executions_are_inside_at_once(
    deployment: Deployment,
) -> None:
    def inside() -> int:
        locks = [ContestedLock(deployment) for _ in range(2)]
        executions = [lock.start("QueueShares", seconds=5) for lock in locks]
        return most_inside(locks[0].ended(execution).output for execution in executions)

    assert any(inside() == 2 for _ in range(MOST_TRIES))


def test_one_owner_for_the_whole_execution_lets_all_iterations_in(lock: ContestedLock) -> None:
    def inside() -> int:
        execution = lock.start("MapOneOwner", seconds=3)
        return most_inside(each["work"] for each in lock.ended(execution).output)

    assert any(inside() == 3 for _ in range(MOST_TRIES))


def test_a_newcomer_overtakes_a_workflow_that_polls(lock: ContestedLock) -> None:
    def overtakes() -> bool:
        owner_id = lock.ask()["owner_id"]
        execution = lock.start("PollShares", seconds=0)
        entered = lock.deployment.states_entered
        wait_until(lambda: "Guard: Wait" in entered(execution), pause_seconds=0.1)
        lock.release(owner_id)
        answer = lock.ask()
        if answer["acquired"]:
            lock.release(answer["owner_id"])
        assert lock.ended(execution).status == "SUCCEEDED"
        return bool(answer["acquired"])

    assert any(overtakes() for _ in range(MOST_TRIES))


# The attribute by which DynamoDB removes what no one uses any more.


@pytest.mark.parametrize(("unit", "is_removed"), [(1, True), (1000, False)])
def test_an_expiry_in_milliseconds_never_removes_what_one_in_seconds_does(
    lock: ContestedLock, unit: int, *, is_removed: bool
) -> None:
    """TTL takes the number for seconds: in milliseconds the past is far in the future."""
    deployment = lock.deployment
    dynamodb, table = deployment.aws.client("dynamodb"), deployment.table_name
    past, other = int(time.time()) - 1, ContestedLock(deployment)
    for name, seconds in ((lock.lock, past * unit), (other.lock, past)):
        item = {**lock_key(name), TTL_ATTRIBUTE: {"N": str(seconds)}}
        dynamodb.put_item(TableName=table, Item=item)

    def is_gone(name: str) -> bool:
        return "Item" not in dynamodb.get_item(TableName=table, Key=lock_key(name))

    wait_until(lambda: is_gone(other.lock))
    assert is_gone(lock.lock) is is_removed


# Waits and leases that end, or do not.


def test_a_new_owner_for_the_repeated_acquire_waits_for_itself(runs: ScenarioRuns) -> None:
    is_holder, states = runs.only("waits_for_itself")
    assert is_holder
    assert "Stay" not in states


def test_a_chain_without_max_wait_waits_on(runs: ScenarioRuns) -> None:
    assert runs.only("without_an_end") > 1


def test_a_holder_whose_execution_no_one_knows_is_robbed_when_its_lease_is_over(
    runs: ScenarioRuns,
) -> None:
    seen = runs.only("robbed")
    assert seen["granted_at_ms"] < seen["work"]["ended_ms"]
    assert (seen["release"]["released"], seen["release"]["reason"]) == (False, "NOT_HELD")
