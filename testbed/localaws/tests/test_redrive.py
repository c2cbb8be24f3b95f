"""Correction redrive: where an execution goes on, and what it finds there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

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
from testbed.localaws.workbench import Ended, Workbench


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
    deadline = time.monotonic() + 30
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
    deadline = time.monotonic() + 30
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
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = bench.tables.get_item(TableName=table, Key={"pk": {"S": "token"}}).get("Item")
        if found is not None and found["token"]["S"] != known:
            return str(found["token"]["S"])
        time.sleep(0.01)
    raise AssertionError("no other token")


# Correction redrive: what the API, the history and the status events tell about it.


WithoutCorrection = Callable[..., Workbench]


def described(bench: Workbench, execution: str) -> dict[str, Any]:
    found = bench.workflows.describe_execution(executionArn=execution)
    names = ("status", "redriveCount", "redriveStatus", "redriveStatusReason")
    answer = {name: found.get(name) for name in names}
    return {**answer, "has a date": "redriveDate" in found, "has ended": "stopDate" in found}


def test_describe_execution_tells_how_often_it_was_redriven(gates: Gates) -> None:
    bench = gates.bench
    execution = bench.start(machine(T=gates.task("t")))

    def expected(status: str, count: int, *, can_be: bool) -> dict[str, Any]:
        end = "is redrivable" if can_be else "cannot be redriven"
        return {
            "status": status,
            "redriveCount": count,
            "redriveStatus": "REDRIVABLE" if can_be else "NOT_REDRIVABLE",
            "redriveStatusReason": f"Execution is {status} and {end}",
            "has a date": count > 0,
            "has ended": status != "RUNNING",
        }

    assert described(bench, execution) == expected("RUNNING", 0, can_be=False)
    stop(bench, execution)
    assert described(bench, execution) == expected("ABORTED", 0, can_be=True)
    redrive(bench, execution)
    assert described(bench, execution) == expected("RUNNING", 1, can_be=False)
    gates.open("t")
    bench.wait(execution)
    assert described(bench, execution) == expected("SUCCEEDED", 1, can_be=False)


def test_control_describe_execution_tells_nothing(left_out: WithoutCorrection) -> None:
    bench = left_out("redrive")
    done = bench.run(machine(P={"Type": "Pass", "End": True}))
    assert described(bench, done.arn)["redriveCount"] is None


def test_the_context_object_tells_when_it_was_redriven_and_before_that_nothing(
    gates: Gates,
) -> None:
    """A guard that was stopped while it waited counts its time from there."""
    is_told = "{% $exists($states.context.Execution.RedriveTime) %}"
    asked = "{% $states.context.Execution.RedriveTime %}"
    definition = machine(
        First={"Type": "Pass", "Assign": {"first": is_told}, "Next": "T"},
        T=gates.task("t", Next="Last", End=False),
        Last={"Type": "Pass", "Output": {"first": "{% $first %}", "last": asked}, "End": True},
    )
    execution = gates.bench.start(definition)
    gates.wait_for("t")
    stop(gates.bench, execution)
    redrive(gates.bench, execution)
    gates.open("t")
    output = gates.bench.wait(execution).output
    found = gates.bench.workflows.describe_execution(executionArn=execution)
    assert datetime.fromisoformat(output["last"]) == found["redriveDate"]
    assert output["first"] is False


def test_the_history_goes_on_without_entering_the_state_a_second_time(gates: Gates) -> None:
    execution = gates.bench.start(machine(T=gates.task("t")))
    gates.wait_for("t")
    stop(gates.bench, execution)
    redrive(gates.bench, execution)
    gates.open("t")
    gates.bench.wait(execution)
    assert [event["type"] for event in gates.bench.events(execution)] == [
        "ExecutionStarted",
        "TaskStateEntered",
        "TaskScheduled",
        "ExecutionAborted",
        "ExecutionRedriven",
        "TaskScheduled",
        "TaskSucceeded",
        "TaskStateExited",
        "ExecutionSucceeded",
    ]


def test_status_events_tell_the_redrive(gates: Gates) -> None:
    bench = gates.bench
    execution = bench.start(machine(T=gates.task("t")))
    name = execution.rsplit(":", 1)[-1]
    pattern = {"source": ["aws.states"], "detail": {"name": [name]}}
    allow = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
    }
    queue = bench.queue(Policy={"Version": "2012-10-17", "Statement": [allow]})
    events = bench.aws.client("events")
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": queue.arn}])
    stop(bench, execution)
    redrive(bench, execution)
    stop(bench, execution)
    details = [json.loads(message["Body"])["detail"] for message in bench.received(queue)]
    assert [
        (detail["status"], detail["redriveCount"], detail["redriveDate"] is not None)
        for detail in details
    ] == [("ABORTED", 0, False), ("RUNNING", 1, True), ("ABORTED", 1, True)]
    assert {detail["executionArn"] for detail in details} == {execution}


def error_of_redrive(bench: Workbench, execution: str) -> str:
    with pytest.raises(ClientError) as raised:
        redrive(bench, execution)
    return str(raised.value.response["Error"]["Code"])


def test_what_cannot_be_redriven_is_refused(gates: Gates) -> None:
    running = gates.bench.start(machine(T=gates.task("t")))
    done: Ended = gates.bench.run(machine(P={"Type": "Pass", "End": True}))
    stranger = running + "-unknown"
    assert [error_of_redrive(gates.bench, arn) for arn in (running, done.arn, stranger)] == [
        "ExecutionNotRedrivable",
        "ExecutionNotRedrivable",
        "ExecutionDoesNotExist",
    ]


def test_the_same_redrive_sent_twice_is_one(gates: Gates) -> None:
    execution = gates.bench.start(machine(T=gates.task("t")))
    stop(gates.bench, execution)
    for _ in range(2):
        gates.bench.workflows.redrive_execution(executionArn=execution, clientToken="one")
    assert described(gates.bench, execution)["redriveCount"] == 1


def test_a_redriven_execution_keeps_the_definition_it_began_with(gates: Gates) -> None:
    bench = gates.bench
    arn = bench.machine(machine(T=gates.task("t")))
    execution = bench.workflows.start_execution(stateMachineArn=arn, input="1")["executionArn"]
    stop(bench, execution)
    other = machine(P={"Type": "Pass", "End": True})
    bench.workflows.update_state_machine(stateMachineArn=arn, definition=json.dumps(other))
    gates.open("t")
    redrive(bench, execution)
    assert bench.wait(execution).output["name"] == "t"


def test_control_there_is_no_redrive(left_out: WithoutCorrection) -> None:
    bench = left_out("redrive")
    fails = bench.run(machine(F={"Type": "Fail", "Error": "E", "Cause": "c"}))
    assert error_of_redrive(bench, fails.arn) == "InvalidAction"
