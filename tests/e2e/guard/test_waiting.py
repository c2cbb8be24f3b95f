"""Taking turns, and giving up."""

from __future__ import annotations

import itertools
import re
import uuid
from typing import Any

import pytest

from tests.e2e.deployment import Deployment, Ended, wait_until

Json = dict[str, Any]


@pytest.fixture
def taken(deployment: Deployment) -> str:
    """The name of a lock that another caller holds for the time of the test."""
    name = f"taken/{uuid.uuid4()}"
    request = {"lock_name": name, "owner_id": str(uuid.uuid4()), "lease_seconds": 60}
    assert deployment.invoke("Acquire", owner_name="a test", **request)["acquired"] is True
    return name


def overlaps(spans: list[Json]) -> int:
    """How many of the spans begin before the one that began before them has ended."""
    ordered = sorted(spans, key=lambda span: span["began"])
    return sum(later["began"] < earlier["ended"] for earlier, later in itertools.pairwise(ordered))


def test_iterations_of_a_map_take_turns(deployment: Deployment) -> None:
    ended = deployment.run("MapGuarded", [{"sleep": 0.5}] * 3)
    assert ended.status == "SUCCEEDED"
    assert len(ended.output) == 3
    assert overlaps(ended.output) == 0


def test_without_the_guard_the_iterations_overlap(deployment: Deployment) -> None:
    def overlap() -> int:
        # Longer than the embedded AWS waits for a busy environment before it starts another one.
        return overlaps(deployment.run("MapUnguarded", [{"sleep": 2}] * 3).output)

    assert any(overlap() for _ in range(3)), "not even with all functions warm"


def test_nested_guards_hold_two_locks_and_release_both(deployment: Deployment) -> None:
    lock = str(uuid.uuid4())
    ended = deployment.run("Nested", {"lock": lock, "return": 1})
    assert ended == Ended(status="SUCCEEDED", output=1)
    assert (deployment.held(f"outer/{lock}"), deployment.held(f"inner/{lock}")) == (0, 0)


def test_two_guards_in_a_row_can_use_one_lock(deployment: Deployment) -> None:
    assert deployment.run("TwoInARow", {"a": 1}) == Ended(status="SUCCEEDED", output={"a": 1})


def test_an_uncontended_guard_adds_four_states_to_a_bare_task(deployment: Deployment) -> None:
    execution = deployment.start("Flat", {})
    deployment.ended(execution)
    assert deployment.states_entered(execution) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Work",
        "Guard: Release",
    ]


def test_a_wait_that_is_over_fails_with_an_error_of_its_own(
    deployment: Deployment, taken: str
) -> None:
    execution = deployment.start("GivesUp", {"lock": taken})
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    told = re.fullmatch(
        rf"lock {taken} was not granted within max_wait of 2 s "
        r"\(waited (\d+) s\), held by a test",
        ended.cause or "",
    )
    assert told, ended.cause
    entered = deployment.timeline(execution).entered
    waited_seconds = entered("Guard: Timed out") - entered("Guard: Enter")
    assert 2 <= int(told[1]) <= waited_seconds + 1
    assert deployment.held(taken) == 1


def test_a_wait_that_is_over_can_go_another_way_with_the_input_untouched(
    deployment: Deployment, taken: str
) -> None:
    assert deployment.run("GivesUpElsewhere", {"lock": taken, "a": [1]}) == Ended(
        status="SUCCEEDED", output={"later": {"lock": taken, "a": [1]}}
    )


def test_a_lock_that_becomes_free_is_granted_to_who_waits(deployment: Deployment) -> None:
    name = f"soon/{uuid.uuid4()}"
    owner = {"lock_name": name, "owner_id": str(uuid.uuid4())}
    deployment.invoke("Acquire", **owner)
    execution = deployment.start("Waits", {"lock": name, "return": "done"})
    wait_until(lambda: "Guard: Wait" in deployment.states_entered(execution))
    assert deployment.invoke("Release", **owner)["released"] is True
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output="done")
