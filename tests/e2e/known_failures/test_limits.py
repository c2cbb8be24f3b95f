"""What the known ways to lock in DynamoDB get wrong, and a guard does not: limits and turns."""

from __future__ import annotations

import uuid

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.protocol import admission
from fairlock.protocol.items import read_state
from fairlock.protocol.model import AcquireRequest, Grant
from fairlock.store.context import LockContext
from tests.e2e.deployment import wait_until
from tests.e2e.known_failures.lock import MOST_TRIES, Lock, most_inside
from tests.e2e.known_failures.scenarios import FOR_EVER_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns
from tests.support.operations import Operations

# A limit that is lowered while more permits are out.

BEFORE, AFTER = 5, 3


def test_nothing_is_granted_until_fewer_are_held_than_the_lowered_limit(lock: Lock) -> None:
    owners = [lock.take(limit=BEFORE) for _ in range(BEFORE)]
    told = []
    for owner in owners[: BEFORE - AFTER + 1]:
        told.append((lock.state().held, lock.ask(limit=AFTER)["acquired"]))
        lock.release(owner)
    told.append((lock.state().held, lock.ask(limit=AFTER)["acquired"]))
    told.append((lock.state().held, lock.ask(limit=AFTER)["acquired"]))
    assert told == [(5, False), (4, False), (3, False), (2, True), (3, False)]


def test_a_waiting_workflow_is_handed_nothing_before_either(lock: Lock) -> None:
    first, second, third, *_ = (lock.take(limit=BEFORE) for _ in range(BEFORE))
    execution = lock.start("Guarded", limit=AFTER, seconds=FOR_EVER_SECONDS)
    wait_until(lambda: lock.deployment.waiters(lock.name) == [execution])
    for owner, held in ((first, 4), (second, 3)):
        lock.release(owner)
        assert lock.state().held == held
        assert lock.deployment.waiters(lock.name) == [execution]
    lock.release(third)
    assert lock.deployment.waiters(lock.name) == []
    assert lock.state().held == AFTER
    assert execution in lock.deployment.holders(lock.name)
    lock.deployment.stop(execution)


def test_with_another_comparison_a_lowered_limit_grants_without_bound(
    lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    different = "(attribute_not_exists(#held) OR #held <> :limit)"
    monkeypatch.setattr(admission, "PERMIT_FREE", different)
    table = LockTable(lock.dynamodb, lock.table_name)
    store = Operations(LockContext(table=table))

    def is_granted(limit: int) -> bool:
        owner_id = str(uuid.uuid4())
        request = AcquireRequest(
            lock_name=lock.name, owner_id=owner_id, owner_name="", lease_ms=60_000, limit=limit
        )
        return isinstance(store.acquire(request), Grant)

    assert [is_granted(BEFORE) for _ in range(BEFORE + 1)] == [*[True] * BEFORE, False]
    assert [is_granted(AFTER) for _ in range(6)] == [True] * 6
    assert lock.state().held == 11


# One at a time: on a lock that no one has used, in a Map, and across machines.


def two_at_once(lock: Lock, machine: str) -> int:
    """Starts two executions; answers how many were inside at once."""
    executions = [lock.start(machine, seconds=1) for _ in range(2)]
    return most_inside(lock.ended(execution).output for execution in executions)


def test_the_first_use_of_a_lock_lets_one_of_two_executions_in(lock: Lock) -> None:
    assert lock.state() == read_state({})
    assert two_at_once(lock, "Guarded") == 1


def test_without_a_guard_both_executions_are_inside_at_once(lock: Lock) -> None:
    assert any(two_at_once(lock, "Unguarded") == 2 for _ in range(MOST_TRIES))


def test_of_three_iterations_of_a_map_one_is_inside_at_a_time(lock: Lock) -> None:
    assert most_inside(lock.run("Map", seconds=1).output) == 1


def test_one_owner_for_the_whole_execution_lets_all_three_iterations_in(lock: Lock) -> None:
    def inside() -> int:
        return most_inside(each["work"] for each in lock.run("MapOneOwner", seconds=3).output)

    assert any(inside() == 3 for _ in range(MOST_TRIES))


def test_two_machines_with_two_guards_each_share_a_lock_of_one_service(
    failure_runs: ScenarioRuns,
) -> None:
    spans = failure_runs.only("one lock")
    assert len(spans) == 4
    assert most_inside(spans) == 1


def test_two_machines_with_a_lock_each_are_inside_at_once(failure_runs: ScenarioRuns) -> None:
    spans = failure_runs.only("two locks")
    assert len(spans) == 4
    assert most_inside(spans) == 2
