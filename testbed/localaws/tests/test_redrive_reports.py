"""Correction redrive: what the API, the history and the status events tell about it."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from testbed.localaws.tests.gates import Gates, machine, redrive, stop
from testbed.localaws.workbench import Ended, Workbench

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
    stranger = running + "-of-nobody"
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
