"""A guard, from outside: data, errors, waiting, skipping, and what fails around it."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.deployment import Deployment, Ended, wait_until

# What enters a guard reaches the task, and what the task returns leaves it.

VALUES = [
    {"a": [1, {"b": None}], "text": "ä€"},
    {},
    [1, "two", None],
    [7],
    [],
    [[1]],
    "text",
    "",
    0,
    1.5,
    9007199254740991,
    True,
    None,
]


@pytest.mark.parametrize("form", ["Flat", "FlatPath", "ChainPath"])
@pytest.mark.parametrize("value", VALUES)
def test_any_json_passes_unchanged(deployment: Deployment, form: str, value: object) -> None:
    assert deployment.run(form, value) == Ended(status="SUCCEEDED", output=value)


def test_the_task_may_return_something_else_than_it_was_given(deployment: Deployment) -> None:
    for form in ("Flat", "FlatPath", "ChainPath"):
        assert deployment.run(form, {"return": ["new"]}).output == ["new"]


@pytest.mark.parametrize("form", ["TokenJsonata", "TokenPath"])
def test_the_task_is_given_the_fencing_token_of_its_grant(
    deployment: Deployment, form: str
) -> None:
    first, second = (deployment.run(form, {}).output["token"] for _ in range(2))
    assert isinstance(first, int)
    assert first > 1_700_000_000_000_000  # the seed is the epoch in microseconds
    assert second > first


def test_an_express_workflow_returns_what_its_task_returns(deployment: Deployment) -> None:
    assert deployment.run_express("ExpressFlat", {"return": [1]}) == Ended(
        status="SUCCEEDED", output=[1]
    )


def spans_of_two_runs(deployment: Deployment, machine: str) -> list[tuple[float, float]]:
    """From when to when the task of each worked; two runs of one start have one name and input."""
    name = str(uuid.uuid4())
    with ThreadPoolExecutor(2) as pool:
        run = [
            pool.submit(deployment.run_express, machine, {"sleep": 3}, name=name) for _ in range(2)
        ]
        outputs = [each.result(timeout=60).output for each in run]
    return sorted((output["began"], output["ended"]) for output in outputs)


def test_an_express_workflow_that_aws_runs_twice_does_its_work_twice_and_never_at_once(
    deployment: Deployment,
) -> None:
    """Each run is an owner of its own: AWS runs an asynchronous Express start at least once."""
    first, second = spans_of_two_runs(deployment, "ExpressFlat")
    assert first[1] <= second[0]


def test_control_without_a_guard_the_two_runs_work_at_once(deployment: Deployment) -> None:
    first, second = spans_of_two_runs(deployment, "ExpressUnguarded")
    assert second[0] < first[1]


# An error leaves the guard as it is, after the lock was released.

FAILING = {"raise": "CardDeclined", "message": "no funds"}


def lock_of(execution_arn: str) -> str:
    """The lock that most forms use: one of its own for each execution."""
    return f"form/{execution_arn.rsplit(':', 1)[1]}"


@pytest.mark.parametrize("form", ["Flat", "FlatPath", "ChainPath", "ChainDecides"])
def test_the_tasks_error_keeps_its_name_and_cause(deployment: Deployment, form: str) -> None:
    execution = deployment.start(form, FAILING)
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")
    assert json.loads(ended.cause or "")["errorMessage"] == "no funds"
    assert deployment.held(lock_of(execution)) == 0


def test_a_fail_state_inside_the_guard_keeps_its_name_and_cause(deployment: Deployment) -> None:
    execution = deployment.start("ChainDecides", "fail")
    assert deployment.ended(execution) == Ended(status="FAILED", error="Refused", cause="by choice")
    assert deployment.held(lock_of(execution)) == 0


def test_a_succeed_state_inside_the_guard_does_not_end_the_workflow(
    deployment: Deployment,
) -> None:
    execution = deployment.start("ChainDecides", "succeed")
    assert deployment.ended(execution).output == {"after": "succeed"}
    assert deployment.held(lock_of(execution)) == 0


def test_an_error_that_the_chain_handles_is_not_an_error_of_the_guard(
    deployment: Deployment,
) -> None:
    execution = deployment.start("ChainDecides", {"raise": "Known"})
    assert deployment.ended(execution).output == {"after": "handled"}
    assert deployment.held(lock_of(execution)) == 0


def test_the_lock_is_held_while_the_task_runs_and_free_after_it(deployment: Deployment) -> None:
    execution = deployment.start("Flat", {"sleep": 0.5})
    wait_until(lambda: "Work" in deployment.states_entered(execution))
    assert deployment.held(lock_of(execution)) == 1
    assert deployment.ended(execution).status == "SUCCEEDED"
    assert deployment.held(lock_of(execution)) == 0


def test_an_error_in_an_express_workflow_keeps_its_name(deployment: Deployment) -> None:
    ended = deployment.run_express("ExpressFlat", FAILING)
    assert (ended.status, ended.error) == ("FAILED", "CardDeclined")


def test_a_lock_name_that_is_no_name_fails_at_once_with_its_rule(deployment: Deployment) -> None:
    ended = deployment.run("GivesUp", {"lock": ""})
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "lock_name: must be a string of 1 to 512 bytes" in (ended.cause or "")


# Taking turns, and giving up.

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


# A guard whose `max_wait` is zero skips a busy lock, whatever its way to wait.


@pytest.mark.parametrize("form", ["Skips", "SkipsElsewhere"])
def test_a_free_lock_is_held_while_the_task_runs(deployment: Deployment, form: str) -> None:
    name = f"free/{uuid.uuid4()}"
    assert deployment.run(form, {"lock": name, "return": 1}) == Ended("SUCCEEDED", output=1)
    assert deployment.held(name) == 0


def test_a_busy_lock_is_skipped_and_its_queue_left_alone(deployment: Deployment) -> None:
    name = f"busy/{uuid.uuid4()}"
    owners = [{"lock_name": name, "owner_id": str(uuid.uuid4())} for _ in range(2)]
    assert deployment.invoke("Acquire", **owners[0], owner_name="a test")["acquired"] is True
    value = {"lock": name, "a": [1]}

    failing = deployment.start("Skips", value)
    ended = deployment.ended(failing)
    assert (ended.status, ended.error) == ("FAILED", "LockWaitTimeout")
    assert (ended.cause or "").endswith("held by a test")
    assert deployment.transitions(failing) == 5

    assert deployment.invoke("Acquire", **owners[1], queue=True)["reason"] == "QUEUED"
    going_elsewhere = deployment.start("SkipsElsewhere", value)
    assert deployment.ended(going_elsewhere) == Ended("SUCCEEDED", output={"skipped": value})
    assert deployment.states_entered(going_elsewhere) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Acquired?",
        "Guard: Give up",
        "Skipped",
    ]
    assert deployment.calls(going_elsewhere) == 2
    assert (deployment.queue_length(name), deployment.holders(name)) == (1, ["a test"])

    assert deployment.invoke("Release", **owners[0])["released"] is True
    assert deployment.run("SkipsElsewhere", value).output == {"skipped": value}
    assert deployment.invoke("Release", **owners[1])["released"] is True


# What the guard does when calls of the lock service go wrong.


def test_a_release_that_fails_does_not_replace_the_result(deployment: Deployment) -> None:
    execution = deployment.start("NotReleased", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    assert "Guard: Not released" in deployment.states_entered(execution)
    assert deployment.held(lock_of(execution)) == 1  # until the lease ends it


def test_a_release_that_fails_does_not_replace_the_error(deployment: Deployment) -> None:
    execution = deployment.start("NotReleased", {"raise": "CardDeclined"})
    assert deployment.ended(execution).error == "CardDeclined"
    assert "Guard: Release after error" in deployment.states_entered(execution)
    # The reaper gets an event of the failure, and may release the lock first.
    wait_until(lambda: deployment.held(lock_of(execution)) == 0)


def test_a_lost_reply_does_not_make_the_workflow_wait_for_itself(deployment: Deployment) -> None:
    execution = deployment.start("LostReply", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    assert deployment.failed_calls(execution) == ["ConnectionError"]
    states = deployment.states_entered(execution)
    assert "Guard: Wait" not in states
    assert states.count("Guard: Enter") == 1
    assert deployment.held(lock_of(execution)) == 0


def test_a_grant_whose_call_failed_for_good_is_given_back(deployment: Deployment) -> None:
    execution = deployment.start("GrantedAndFailed", {})
    ended = deployment.ended(execution)
    assert (ended.status, ended.error) == ("FAILED", "InvalidRequest")
    assert "granted, but who knows" in (ended.cause or "")
    assert "Work" not in deployment.states_entered(execution)
    assert deployment.held(lock_of(execution)) == 0


def test_an_acquisition_that_was_released_meanwhile_begins_again(deployment: Deployment) -> None:
    execution = deployment.start("ReleasedMeanwhile", {"a": 1})
    assert deployment.ended(execution) == Ended(status="SUCCEEDED", output={"after": {"a": 1}})
    states = deployment.states_entered(execution)
    assert (states.count("Guard: Enter"), states.count("Guard: Acquire")) == (1, 2)
    assert deployment.held(lock_of(execution)) == 0


def test_a_waiter_that_is_released_again_and_again_gives_up_in_its_time_after_few_transitions(
    deployment: Deployment,
) -> None:
    execution = deployment.start("NeverHeld", {})
    assert deployment.ended(execution).error == "LockWaitTimeout"
    states = deployment.states_entered(execution)
    # After pauses of 1, 2 and at most 3 s.
    tries = 1 + states.count("Guard: Acquire again")
    assert (states.count("Guard: Enter"), tries in (2, 3, 4)) == (1, True)
    assert deployment.transitions(execution) == 1 + 3 * tries - 1 + len(["Give up", "Timed out"])
    assert "Work" not in states
