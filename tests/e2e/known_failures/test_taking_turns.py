"""One at a time: on a lock that no one has used, in a Map, and across machines."""

from __future__ import annotations

from fairlock.protocol.items import read_state
from tests.e2e.known_failures.lock import MOST_TRIES, Lock, most_inside
from tests.e2e.scenario_runs import ScenarioRuns


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
