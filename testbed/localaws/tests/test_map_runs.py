"""Corrections map_runs and nested_executions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from testbed.localaws.workbench import Ended, Workbench

WithoutCorrection = Callable[..., Workbench]
WAITS_SECONDS = 3
LONG_SECONDS = 25
"""Of what is stopped long before it ends."""


def distributed(
    *states: tuple[str, dict[str, Any]], kind: str = "STANDARD", **fields: Any
) -> dict[str, Any]:
    """A machine of one distributed Map whose children walk through these states."""
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": kind},
        "StartAt": states[0][0],
        "States": dict(states),
    }
    each = {"Type": "Map", "Label": "Each", "ItemProcessor": processor, "End": True, **fields}
    return {"StartAt": "Map", "States": {"Map": each}}


def failing(*, seconds: int = WAITS_SECONDS, **fields: Any) -> dict[str, Any]:
    """The children of the item 1 fail after a second, the others take longer."""
    choice = {"Variable": "$", "NumericEquals": 1, "Next": "Late"}
    return distributed(
        ("Choice", {"Type": "Choice", "Choices": [choice], "Default": "Waits"}),
        ("Waits", {"Type": "Wait", "Seconds": seconds, "End": True}),
        ("Late", {"Type": "Wait", "Seconds": 1, "Next": "Fails"}),
        ("Fails", {"Type": "Fail", "Error": "Broken", "Cause": "on purpose"}),
        **fields,
    )


def children_of(bench: Workbench, execution: str) -> list[dict[str, Any]]:
    """What DescribeExecution tells of each child of the only Map Run."""
    [run] = bench.workflows.list_map_runs(executionArn=execution)["mapRuns"]
    listed = bench.workflows.list_executions(mapRunArn=run["mapRunArn"])["executions"]
    return [
        dict(bench.workflows.describe_execution(executionArn=each["executionArn"]))
        for each in listed
    ]


def statuses_of(bench: Workbench, execution: str) -> list[str]:
    return sorted(child["status"] for child in children_of(bench, execution))


def test_one_failure_that_is_not_tolerated_aborts_the_others(corrected: Workbench) -> None:
    ended = corrected.run(failing(seconds=LONG_SECONDS), [0, 1, 0])
    assert (ended.status, ended.error) == ("FAILED", "States.ExceedToleratedFailureThreshold")
    assert ended.seconds < LONG_SECONDS
    assert statuses_of(corrected, ended.arn) == ["ABORTED", "ABORTED", "FAILED"]


def test_control_the_others_run_to_their_end(left_out: WithoutCorrection) -> None:
    ended = left_out("map_runs", "branch_failure", "redrive").run(failing(), [0, 1, 0])
    assert ended.status == "FAILED"
    assert ended.seconds >= WAITS_SECONDS


@pytest.mark.parametrize(
    "tolerated",
    [{"ToleratedFailureCount": 1}, {"ToleratedFailurePercentage": 34}],
    ids=["count", "percentage"],
)
def test_failures_that_are_tolerated_leave_the_others_alone(
    corrected: Workbench, tolerated: dict[str, Any]
) -> None:
    ended = corrected.run(failing(**tolerated), [0, 1, 0])
    assert ended.status == "SUCCEEDED"
    assert ended.output[1] == {"Error": "Broken", "Cause": "on purpose"}
    assert statuses_of(corrected, ended.arn) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]


def test_no_child_starts_when_too_many_have_failed(corrected: Workbench) -> None:
    ended = corrected.run(failing(MaxConcurrency=1), [1, 0, 0])
    assert statuses_of(corrected, ended.arn) == ["FAILED"]


def test_who_stops_the_parent_aborts_the_children(corrected: Workbench) -> None:
    execution = corrected.start(failing(seconds=LONG_SECONDS), [0, 0])
    while len(running := corrected.workflows.list_map_runs(executionArn=execution)["mapRuns"]) < 1:
        pass
    [run] = running
    while not corrected.workflows.list_executions(mapRunArn=run["mapRunArn"])["executions"]:
        pass
    corrected.workflows.stop_execution(executionArn=execution)
    for child in children_of(corrected, execution):
        assert corrected.wait(child["executionArn"]).status == "ABORTED"


def execution_in_a_child(bench: Workbench, **fields: Any) -> tuple[Ended, dict[str, Any]]:
    tells = {"Type": "Pass", "Parameters": {"execution.$": "$$.Execution"}, "End": True}
    ended = bench.run(distributed(("Tells", tells), **fields), ["item"])
    return ended, ended.output[0]["execution"]


def test_each_child_has_a_context_object_of_its_own(corrected: Workbench) -> None:
    ended, execution = execution_in_a_child(corrected)
    [child] = children_of(corrected, ended.arn)
    assert execution["Id"] == child["executionArn"] != ended.arn
    machine = ended.arn.split(":")[6]
    assert f":execution:{machine}/Each:" in child["executionArn"]
    assert execution["Input"] == "item"


def test_control_each_child_has_that_of_its_parent(left_out: WithoutCorrection) -> None:
    ended, execution = execution_in_a_child(left_out("map_runs", "branch_failure", "redrive"))
    assert execution["Id"] == ended.arn


def test_an_express_child_is_described_and_cannot_wait_for_a_task_token(
    corrected: Workbench,
) -> None:
    ended, execution = execution_in_a_child(corrected, kind="EXPRESS")
    [child] = children_of(corrected, ended.arn)
    assert child["status"] == "SUCCEEDED"
    assert ":express:" in execution["Id"]
    waits = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": "http://127.0.0.1/none", "MessageBody.$": "$$.Task.Token"},
        "End": True,
    }
    ended = corrected.run(distributed(("Waits", waits), kind="EXPRESS"), ["item"])
    [child] = children_of(corrected, ended.arn)
    assert child["error"] == "States.Runtime"


def test_a_redrive_goes_on_with_the_unsuccessful_children_under_their_arns(
    corrected: Workbench,
) -> None:
    source = (
        "seen = {}\n"
        "def handler(event, context):\n"
        "    seen[event] = seen.get(event, 0) + 1\n"
        "    if event == 'fails' and seen[event] == 1: raise RuntimeError\n"
        "    return seen[event]\n"
    )
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": corrected.function(source), "Payload.$": "$"},
        "OutputPath": "$.Payload",
        "End": True,
    }
    ended = corrected.run(distributed(("Task", task), MaxConcurrency=1), ["works", "fails"])
    assert ended.status == "FAILED"
    before = {child["executionArn"]: child["status"] for child in children_of(corrected, ended.arn)}
    [failed] = [arn for arn, status in before.items() if status == "FAILED"]
    with pytest.raises(ClientError, match="ExecutionNotRedrivable"):
        corrected.workflows.redrive_execution(executionArn=failed)
    corrected.workflows.redrive_execution(executionArn=ended.arn)
    again = corrected.wait(ended.arn)
    assert (again.status, again.output) == ("SUCCEEDED", [1, 2])
    assert {
        child["executionArn"]: child["redriveCount"] for child in children_of(corrected, ended.arn)
    } == {arn: int(arn == failed) for arn in before}


def test_the_fields_of_a_jsonata_map_may_be_expressions(corrected: Workbench) -> None:
    fields: dict[str, Any] = {
        "QueryLanguage": "JSONata",
        "Items": "{% $states.input.items %}",
        "ItemSelector": {"number": "{% $states.context.Map.Item.Value %}", "of": "{% $all %}"},
        "MaxConcurrency": "{% 1 %}",
        "ToleratedFailurePercentage": "{% 50 %}",
    }
    machine = distributed(("Tells", {"Type": "Pass", "End": True}), **fields)
    first = {"Type": "Pass", "Assign": {"all": 2}, "Next": "Map"}
    machine |= {"StartAt": "First", "States": {"First": first, **machine["States"]}}
    ended = corrected.run(machine, {"items": [7, 8]})
    assert ended.output == [{"number": 7, "of": 2}, {"number": 8, "of": 2}]


def status_events_of_children(bench: Workbench, kind: str) -> int:
    events = bench.aws.client("events")
    queue = bench.queue()
    bench.queues.set_queue_attributes(
        QueueUrl=queue.url,
        Attributes={
            "Policy": '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"sqs:SendMessage",'
            f'"Resource":"{queue.arn}"}}]}}'
        },
    )
    pattern = '{"source":["aws.states"],"detail":{"status":["SUCCEEDED"]}}'
    events.put_rule(Name=f"children-{kind}", EventPattern=pattern)
    events.put_targets(Rule=f"children-{kind}", Targets=[{"Id": "1", "Arn": queue.arn}])
    ended = bench.run(distributed(("P", {"Type": "Pass", "End": True}), kind=kind), [1])
    machine = ended.arn.split(":")[6]
    bodies = [message["Body"] for message in bench.received(queue, seconds=1)]
    return sum(f"{machine}/Each:" in body for body in bodies)


def test_standard_children_send_status_events_and_express_children_send_none(
    corrected: Workbench,
) -> None:
    assert status_events_of_children(corrected, "STANDARD") == 1
    assert status_events_of_children(corrected, "EXPRESS") == 0


def nesting(bench: Workbench, *, seconds: int = WAITS_SECONDS) -> tuple[str, str]:
    """A machine that waits for executions of a second one, which take so long; both ARNs."""
    wait = {"Type": "Wait", "Seconds": seconds, "Next": "P"}
    states = {"W": wait, "P": {"Type": "Pass", "Result": "inner", "End": True}}
    inner = bench.machine({"StartAt": "W", "States": states})
    start = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": inner, "Input": {"a": 1}},
        "OutputPath": "$.Output",
        "End": True,
    }
    return bench.start({"StartAt": "S", "States": {"S": start}}), inner


def inner_of(bench: Workbench, machine: str) -> str:
    while not (found := bench.workflows.list_executions(stateMachineArn=machine)["executions"]):
        pass
    return str(found[0]["executionArn"])


def test_a_nested_execution_gives_its_output(corrected: Workbench) -> None:
    outer, _ = nesting(corrected)
    ended = corrected.wait(outer)
    assert (ended.status, ended.output) == ("SUCCEEDED", "inner")


def test_the_task_fails_when_its_nested_execution_is_stopped(corrected: Workbench) -> None:
    outer, machine = nesting(corrected, seconds=LONG_SECONDS)
    corrected.workflows.stop_execution(executionArn=inner_of(corrected, machine))
    ended = corrected.wait(outer)
    assert ended.status == "FAILED"
    assert ended.seconds < LONG_SECONDS


def stopped_with_its_parent(bench: Workbench, *, seconds: int) -> str:
    outer, machine = nesting(bench, seconds=seconds)
    inner = inner_of(bench, machine)
    bench.workflows.stop_execution(executionArn=outer)
    return bench.wait(inner).status


def test_a_nested_execution_is_stopped_with_its_task(corrected: Workbench) -> None:
    assert stopped_with_its_parent(corrected, seconds=LONG_SECONDS) == "ABORTED"


def test_control_a_nested_execution_goes_on_without_its_task(left_out: WithoutCorrection) -> None:
    bench = left_out("nested_executions")
    assert stopped_with_its_parent(bench, seconds=WAITS_SECONDS) == "SUCCEEDED"
