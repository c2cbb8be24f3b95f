"""Corrections callbacks and task_timeouts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]

IGNORES_TOKEN = "def handler(event, context): return 'not the result'\n"
ANSWERS_AT_ONCE = """
import boto3
def handler(event, context):
    client = boto3.client('stepfunctions')
    client.send_task_success(taskToken=event['token'], output='"first"')
    try:
        client.send_task_failure(taskToken=event['token'], error='Second', cause='')
    except client.exceptions.TaskTimedOut:
        pass
"""
FAILS = "class LockLost(Exception): pass\ndef handler(e, c): raise LockLost('gone')\n"
WRITES_TOKEN = """
import boto3, os
tables = boto3.client('dynamodb')
def handler(event, context):
    if not event: return
    tables.put_item(TableName=os.environ['TABLE'], Item={'pk': {'S': event['token']}})
"""


def waiting(function: str, **fields: object) -> dict[str, Any]:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke.waitForTaskToken",
        "Parameters": {"FunctionName": function, "Payload": {"token.$": "$$.Task.Token"}},
        "End": True,
        **fields,
    }
    return {"StartAt": "T", "States": {"T": task}}


def test_an_answer_that_comes_before_the_call_returns_is_the_result(corrected: Workbench) -> None:
    ended = corrected.run(waiting(corrected.function(ANSWERS_AT_ONCE, Timeout=30)))
    assert (ended.status, ended.output) == ("SUCCEEDED", "first")


def test_control_the_last_answer_counts(left_out: WithoutCorrection) -> None:
    bench = left_out("callbacks")
    assert bench.run(waiting(bench.function(ANSWERS_AT_ONCE, Timeout=30))).error == "Second"


def test_a_failing_call_fails_the_task_with_its_error(corrected: Workbench) -> None:
    ended = corrected.run(waiting(corrected.function(FAILS), TimeoutSeconds=60))
    assert (ended.status, ended.error) == ("FAILED", "LockLost")


def test_control_a_failing_call_is_swallowed(left_out: WithoutCorrection) -> None:
    bench = left_out("callbacks")
    assert bench.run(waiting(bench.function(FAILS), TimeoutSeconds=1)).error == "States.Timeout"


def test_a_missing_heartbeat_fails_the_task(corrected: Workbench) -> None:
    silent = waiting(corrected.function(IGNORES_TOKEN), HeartbeatSeconds=1, TimeoutSeconds=60)
    ended = corrected.run(silent)
    assert (ended.status, ended.error) == ("FAILED", "States.HeartbeatTimeout")


def test_control_a_missing_heartbeat_is_ignored(left_out: WithoutCorrection) -> None:
    bench = left_out("callbacks")
    silent = waiting(bench.function(IGNORES_TOKEN), HeartbeatSeconds=1, TimeoutSeconds=2)
    assert bench.run(silent).error == "States.Timeout"


def test_heartbeats_keep_the_task_alive(corrected: Workbench) -> None:
    table = corrected.table()
    execution = corrected.start(waiting(writer_of_tokens(corrected, table), HeartbeatSeconds=3))
    token = next(iter(tokens(corrected, table, count=1)))
    beats_until = time.monotonic() + 4
    while time.monotonic() < beats_until:
        corrected.workflows.send_task_heartbeat(taskToken=token)
        time.sleep(0.05)
    corrected.workflows.send_task_success(taskToken=token, output="[1]")
    assert corrected.wait(execution).output == [1]


def writer_of_tokens(bench: Workbench, table: str) -> str:
    """A function, warm: on a busy machine its start takes longer than the limits here."""
    writes = bench.function(WRITES_TOKEN, Environment={"Variables": {"TABLE": table}}, Timeout=30)
    bench.functions.invoke(FunctionName=writes, Payload=b"{}")
    return writes


def tokens(bench: Workbench, table: str, *, count: int) -> set[str]:
    for _ in range(3000):
        found = {item["pk"]["S"] for item in bench.tables.scan(TableName=table)["Items"]}
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"fewer than {count} tokens were written")


def tokens_of_two_attempts(bench: Workbench, *, expected: int) -> int:
    table = bench.table()
    writes = writer_of_tokens(bench, table)
    retrier = {"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "MaxAttempts": 1}
    retrier["JitterStrategy"] = "FULL"
    ended = bench.run(waiting(writes, TimeoutSeconds=1, Retry=[retrier]))
    assert [event["type"] for event in bench.events(ended.arn)].count("TaskScheduled") == 2
    return len(tokens(bench, table, count=expected))


def test_every_attempt_has_a_token_of_its_own(corrected: Workbench) -> None:
    assert tokens_of_two_attempts(corrected, expected=2) == 2


def test_control_all_attempts_share_one_token(left_out: WithoutCorrection) -> None:
    assert tokens_of_two_attempts(left_out("callbacks"), expected=1) == 1


def test_an_answer_that_is_not_json_is_refused(corrected: Workbench) -> None:
    with pytest.raises(corrected.workflows.exceptions.InvalidOutput):
        corrected.workflows.send_task_success(taskToken="any", output="not json")


def test_an_unknown_token_is_refused(corrected: Workbench) -> None:
    with pytest.raises(corrected.workflows.exceptions.TaskTimedOut):
        corrected.workflows.send_task_success(taskToken="unknown", output="1")


def sleeper(bench: Workbench, seconds: int) -> str:
    source = f"import time\ndef handler(event, context): time.sleep({seconds})\n"
    return bench.function(source, Timeout=60)


def limited(function: str, **fields: object) -> dict[str, Any]:
    call = "Arguments" if fields.get("QueryLanguage") == "JSONata" else "Parameters"
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        call: {"FunctionName": function},
        "End": True,
        **fields,
    }
    return {"StartAt": "T", "States": {"T": task}}


LIMITS: list[dict[str, Any]] = [
    {"TimeoutSeconds": 1},
    {"TimeoutSecondsPath": "$.limit"},
    {"QueryLanguage": "JSONata", "TimeoutSeconds": "{% $states.input.limit %}"},
]


def test_a_task_that_outlasts_its_limit_times_out(corrected: Workbench) -> None:
    """A limit given as a number, by path and by expression; all three at once, to save time."""
    function = sleeper(corrected, 25)
    executions = [corrected.start(limited(function, **limit), {"limit": 1}) for limit in LIMITS]
    for execution in executions:
        ended = corrected.wait(execution)
        assert (ended.status, ended.error) == ("FAILED", "States.Timeout")
        scheduled, timed_out, failed = corrected.events(execution)[-3:]
        assert [scheduled["type"], timed_out["type"], failed["type"]] == [
            "TaskScheduled",
            "TaskTimedOut",
            "ExecutionFailed",
        ]
        # Long before the function has ended.
        assert 1 <= (timed_out["timestamp"] - scheduled["timestamp"]).total_seconds() < 20


def test_control_a_limit_given_by_path_is_ignored(left_out: WithoutCorrection) -> None:
    bench = left_out("task_timeouts")
    definition = limited(sleeper(bench, 2), TimeoutSecondsPath="$.limit")
    assert bench.run(definition, {"limit": 1}).status == "SUCCEEDED"


# Corrections stop_execution and execution_timeout.


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


def written_after_stop(bench: Workbench, *, patience_seconds: float) -> bool:
    table = bench.table()
    execution = bench.start(put_after(1, table))
    wait_until_entered(bench, execution, "ParallelStateEntered")
    bench.workflows.stop_execution(executionArn=execution, error="Stopped", cause="by a test")
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline and not is_written(bench, table):
        time.sleep(0.05)
    return is_written(bench, table)


def test_a_stopped_execution_does_nothing_more(corrected: Workbench) -> None:
    assert not written_after_stop(corrected, patience_seconds=2)


def test_control_a_stopped_execution_goes_on(left_out: WithoutCorrection) -> None:
    assert written_after_stop(left_out("stop_execution"), patience_seconds=30)


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
    for _ in range(3000):
        found = bench.tables.get_item(TableName=table, Key={"pk": {"S": "written"}})
        if "Item" in found:
            return dict(found["Item"])
        time.sleep(0.01)
    raise AssertionError("the item was never written")


def outlasts_its_limit(seconds: int) -> dict[str, Any]:
    wait = {"Type": "Wait", "Seconds": seconds, "End": True}
    return {"TimeoutSeconds": 1, "StartAt": "W", "States": {"W": wait}}


def test_an_execution_that_outlasts_its_limit_is_timed_out(corrected: Workbench) -> None:
    ended = corrected.run(outlasts_its_limit(25))
    assert ended.status == "TIMED_OUT"
    assert corrected.events(ended.arn)[-1]["type"] == "ExecutionTimedOut"


def test_an_execution_within_its_limit_succeeds(corrected: Workbench) -> None:
    quick = {
        "TimeoutSeconds": 60,
        "StartAt": "P",
        "States": {"P": {"Type": "Pass", "Result": 1, "End": True}},
    }
    ended = corrected.run(quick)
    assert (ended.status, ended.output) == ("SUCCEEDED", 1)


def test_control_the_limit_is_ignored(left_out: WithoutCorrection) -> None:
    assert left_out("execution_timeout").run(outlasts_its_limit(2)).status == "SUCCEEDED"


def test_a_synchronous_execution_tells_that_it_timed_out(corrected: Workbench) -> None:
    machine = corrected.machine(outlasts_its_limit(25), kind="EXPRESS")
    answer = corrected.workflows.start_sync_execution(stateMachineArn=machine, input="{}")
    assert answer["status"] == "TIMED_OUT"
