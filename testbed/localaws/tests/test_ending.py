"""Corrections stop_execution and execution_timeout."""

import time
from collections.abc import Callable
from typing import Any

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]


def put_after(seconds: int, table: str) -> dict[str, Any]:
    """Two branches, of which the second writes after the time."""
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:dynamodb:putItem",
        "Parameters": {"TableName": table, "Item": {"pk": {"S": "written"}}},
        "End": True,
    }
    writes = {
        "StartAt": "Wait",
        "States": {"Wait": {"Type": "Wait", "Seconds": seconds, "Next": "Put"}, "Put": put},
    }
    return {
        "StartAt": "Both",
        "States": {"Both": {"Type": "Parallel", "Branches": [writes], "End": True}},
    }


def wait_until_entered(bench: Workbench, execution: str, event_type: str) -> None:
    deadline = time.monotonic() + 30
    while all(event["type"] != event_type for event in bench.events(execution)):
        assert time.monotonic() < deadline, f"{event_type} never came"
        time.sleep(0.01)


def is_written(bench: Workbench, table: str) -> bool:
    found = bench.tables.get_item(TableName=table, Key={"pk": {"S": "written"}})
    return "Item" in found


def written_after_stop(bench: Workbench) -> bool:
    table = bench.table()
    execution = bench.start(put_after(1, table))
    wait_until_entered(bench, execution, "ParallelStateEntered")
    bench.workflows.stop_execution(executionArn=execution, error="Stopped", cause="by a test")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and not is_written(bench, table):
        time.sleep(0.05)
    return is_written(bench, table)


def test_a_stopped_execution_does_nothing_more(corrected: Workbench) -> None:
    assert not written_after_stop(corrected)


def test_control_a_stopped_execution_goes_on(left_out: WithoutCorrection) -> None:
    assert written_after_stop(left_out("stop_execution"))


def test_a_stopped_execution_stays_aborted(corrected: Workbench) -> None:
    fails = {
        "StartAt": "Wait",
        "States": {
            "Wait": {"Type": "Wait", "Seconds": 1, "Next": "F"},
            "F": {"Type": "Fail", "Error": "Late", "Cause": ""},
        },
    }
    execution = corrected.start(fails)
    corrected.workflows.stop_execution(executionArn=execution, error="Stopped", cause="by a test")
    # Begun later, it ends later than the stopped one would have failed.
    corrected.run({"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 1, "End": True}}})
    ended = corrected.wait(execution)
    assert (ended.status, ended.error, ended.cause) == ("ABORTED", "Stopped", "by a test")
    assert corrected.events(execution)[-1]["type"] == "ExecutionAborted"


def test_a_token_of_a_stopped_execution_completes_nothing(corrected: Workbench) -> None:
    table = corrected.table()
    execution = corrected.start(
        {
            "StartAt": "T",
            "States": {
                "T": {
                    "Type": "Task",
                    "Resource": "arn:aws:states:::aws-sdk:dynamodb:putItem.waitForTaskToken",
                    "Parameters": {
                        "TableName": table,
                        "Item": {"pk": {"S": "written"}, "token": {"S.$": "$$.Task.Token"}},
                    },
                    "End": True,
                }
            },
        }
    )
    token = item_when_written(corrected, table)["token"]["S"]
    corrected.workflows.stop_execution(executionArn=execution)
    try:
        corrected.workflows.send_task_success(taskToken=token, output="1")
    except corrected.workflows.exceptions.TaskTimedOut:
        pass
    else:
        raise AssertionError("the token was still accepted")


def item_when_written(bench: Workbench, table: str) -> dict[str, Any]:
    for _ in range(500):
        found = bench.tables.get_item(TableName=table, Key={"pk": {"S": "written"}})
        if "Item" in found:
            return dict(found["Item"])
        time.sleep(0.01)
    raise AssertionError("the item was never written")


WAITS_TWO_SECONDS = {
    "TimeoutSeconds": 1,
    "StartAt": "W",
    "States": {"W": {"Type": "Wait", "Seconds": 2, "End": True}},
}


def test_an_execution_that_outlasts_its_limit_is_timed_out(corrected: Workbench) -> None:
    ended = corrected.run(WAITS_TWO_SECONDS)
    assert ended.status == "TIMED_OUT"
    assert corrected.events(ended.arn)[-1]["type"] == "ExecutionTimedOut"


def test_an_execution_within_its_limit_succeeds(corrected: Workbench) -> None:
    quick = {
        "TimeoutSeconds": 5,
        "StartAt": "P",
        "States": {"P": {"Type": "Pass", "Result": 1, "End": True}},
    }
    ended = corrected.run(quick)
    assert (ended.status, ended.output) == ("SUCCEEDED", 1)


def test_control_the_limit_is_ignored(left_out: WithoutCorrection) -> None:
    assert left_out("execution_timeout").run(WAITS_TWO_SECONDS).status == "SUCCEEDED"


def test_a_synchronous_execution_tells_that_it_timed_out(corrected: Workbench) -> None:
    machine = corrected.machine(WAITS_TWO_SECONDS, kind="EXPRESS")
    answer = corrected.workflows.start_sync_execution(stateMachineArn=machine, input="{}")
    assert answer["status"] == "TIMED_OUT"
