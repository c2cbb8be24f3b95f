"""Correction redrive: where an execution goes on, and what it finds there."""

import time

import pytest

from testbed.localaws.tests.gates import (
    Gates,
    machine,
    parallel,
    pass_to,
    redrive,
    seen,
    states,
    stop,
)
from testbed.localaws.workbench import Workbench


def test_a_stopped_execution_goes_on_in_both_branches_of_a_nested_parallel(gates: Gates) -> None:
    """The form of a guard: variables, then two branches, in one of them two more."""
    inner = parallel(
        states(A1=pass_to("A2", {"of": "a"}, own="kept"), A2=gates.task("a")),
        states(B=gates.task("b")),
    )
    definition = machine(
        Acquire=pass_to("Work", {"first": True}, lock={"token": 7}),
        Work=parallel(
            states(Prepare=pass_to("Inner", {"inner": 1}), Inner=inner),
            states(Beat=gates.task("beat")),
            Next="Release",
        ),
        Release=gates.task("release"),
    )
    execution = gates.bench.start(definition)
    gates.wait_for("a", "b", "beat")
    stop(gates.bench, execution)
    assert gates.bench.wait(execution).status == "ABORTED"
    redrive(gates.bench, execution)
    gates.wait_for("a", "b", "beat", times=2)
    gates.open("a", "b", "beat", "release")
    token = {"token": 7}
    branches = [
        [
            seen("a", {"of": "a"}, redrives=1, lock=token, own="kept"),
            seen("b", {"inner": 1}, redrives=1, lock=token),
        ],
        seen("beat", {"first": True}, redrives=1, lock=token),
    ]
    ended = gates.bench.wait(execution)
    assert ended.output == seen("release", branches, redrives=1, lock=token)
    assert {name: gates.times(name) for name in ("a", "b", "beat", "release")} == {
        "a": 2,
        "b": 2,
        "beat": 2,
        "release": 1,
    }


def test_branches_that_succeeded_keep_their_results(gates: Gates) -> None:
    definition = machine(
        Both=parallel(states(A=gates.task("done")), states(B=gates.task("broken")))
    )
    gates.open("done")
    execution = gates.bench.start(definition, {"in": 1})
    wait_for_event(gates.bench, execution, "TaskStateExited")
    gates.fail("broken")
    failed = gates.bench.wait(execution)
    assert (failed.status, failed.error) == ("FAILED", "RuntimeError")
    gates.open("broken")
    redrive(gates.bench, execution)
    ended = gates.bench.wait(execution)
    assert ended.output == [
        seen("done", {"in": 1}, redrives=0),
        seen("broken", {"in": 1}, redrives=1),
    ]
    assert gates.times("done") == 1


def wait_for_event(bench: Workbench, execution: str, event_type: str) -> None:
    deadline = time.monotonic() + 10
    while all(event["type"] != event_type for event in bench.events(execution)):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {event_type}")
        time.sleep(0.01)


def test_iterations_that_succeeded_keep_their_results(gates: Gates) -> None:
    choice = {"Condition": "{% $states.input = 1 %}", "Next": "T"}
    iteration = states(
        C={"Type": "Choice", "Choices": [choice], "Default": "P"},
        P={"Type": "Pass", "Output": "{% $states.context.Execution.RedriveCount %}", "End": True},
        T=gates.task("t"),
    )
    execution = gates.bench.start(
        machine(M={"Type": "Map", "Items": [0, 1, 2], "ItemProcessor": iteration, "End": True})
    )
    gates.wait_for("t")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and count(gates.bench, execution, "PassStateExited") < 2:
        time.sleep(0.01)
    stop(gates.bench, execution)
    redrive(gates.bench, execution)
    gates.open("t")
    assert gates.bench.wait(execution).output == [0, seen("t", 1, redrives=1), 0]


def count(bench: Workbench, execution: str, event_type: str) -> int:
    return sum(event["type"] == event_type for event in bench.events(execution))


def test_retries_count_from_zero_after_a_redrive(gates: Gates) -> None:
    retry = [{"ErrorEquals": ["RuntimeError"], "IntervalSeconds": 0, "MaxAttempts": 2}]
    gates.fail("t")
    execution = gates.bench.start(machine(T=gates.task("t", Retry=retry)))
    gates.bench.wait(execution)
    redrive(gates.bench, execution)
    assert gates.bench.wait(execution).status == "FAILED"
    assert gates.times("t") == 6


def test_an_execution_that_timed_out_has_its_whole_time_again(gates: Gates) -> None:
    execution = gates.bench.start({"TimeoutSeconds": 1, **machine(T=gates.task("t"))})
    assert gates.bench.wait(execution).status == "TIMED_OUT"
    redrive(gates.bench, execution)
    assert gates.bench.wait(execution).status == "TIMED_OUT"
    redrive(gates.bench, execution)
    gates.open("t")
    assert gates.bench.wait(execution).output == seen("t", None, redrives=2)


def test_an_execution_can_be_stopped_and_redriven_again_and_again(gates: Gates) -> None:
    definition = machine(
        S=pass_to("P", 1, lock=5),
        P=parallel(states(A=gates.task("a")), states(B=gates.task("b"))),
    )
    execution = gates.bench.start(definition)
    for _ in range(5):  # at any moment, before the branches have begun again included
        stop(gates.bench, execution)
        redrive(gates.bench, execution)
    gates.open("a", "b")
    assert gates.bench.wait(execution).output == [
        seen("a", 1, redrives=5, lock=5),
        seen("b", 1, redrives=5, lock=5),
    ]
    assert count(gates.bench, execution, "ExecutionRedriven") == 5


def test_a_redriven_callback_task_has_a_new_token(corrected: Workbench) -> None:
    put = "arn:aws:states:::aws-sdk:dynamodb:putItem.waitForTaskToken"
    table = corrected.table()
    item = {"pk": {"S": "token"}, "token": {"S": "{% $states.context.Task.Token %}"}}
    arguments = {"TableName": table, "Item": item}
    task = {"Type": "Task", "Resource": put, "Arguments": arguments, "End": True}
    execution = corrected.start(machine(T=task))
    first = other_token(corrected, table, "")
    stop(corrected, execution)
    redrive(corrected, execution)
    second = other_token(corrected, table, first)
    with pytest.raises(corrected.workflows.exceptions.TaskTimedOut):
        corrected.workflows.send_task_success(taskToken=first, output="1")
    corrected.workflows.send_task_success(taskToken=second, output="2")
    assert corrected.wait(execution).output == 2


def other_token(bench: Workbench, table: str, known: str) -> str:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        found = bench.tables.get_item(TableName=table, Key={"pk": {"S": "token"}}).get("Item")
        if found is not None and found["token"]["S"] != known:
            return str(found["token"]["S"])
        time.sleep(0.01)
    raise AssertionError("no other token")
