"""Correction event_targets, and the status events the reaper relies on."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]

FAILS_ONCE = """
import boto3, os
def handler(event, context):
    answer = boto3.client('dynamodb').update_item(
        TableName=os.environ['TABLE'], Key={'pk': {'S': 'calls'}},
        UpdateExpression='ADD n :one', ExpressionAttributeValues={':one': {'N': '1'}},
        ReturnValues='UPDATED_NEW')
    if int(answer['Attributes']['n']['N']) < 2: raise RuntimeError('not yet')
"""


def calls_of_a_failing_target(bench: Workbench) -> int:
    """How often a function was called that fails once, three seconds after the event."""
    events, table = bench.aws.client("events"), bench.table()
    function = bench.function(FAILS_ONCE, Environment={"Variables": {"TABLE": table}})
    events.put_rule(Name=table, EventPattern=json.dumps({"source": [table]}))
    arn = bench.functions.get_function_configuration(FunctionName=function)["FunctionArn"]
    events.put_targets(Rule=table, Targets=[{"Id": "1", "Arn": arn}])
    events.put_events(Entries=[{"Source": table, "DetailType": "any", "Detail": "{}"}])
    deadline, calls = time.monotonic() + 3, 0
    while time.monotonic() < deadline and calls < 2:
        item = bench.tables.get_item(TableName=table, Key={"pk": {"S": "calls"}}).get("Item")
        calls = int(item["n"]["N"]) if item else 0
        time.sleep(0.05)
    return calls


def test_a_failing_target_function_is_tried_again(corrected: Workbench) -> None:
    assert calls_of_a_failing_target(corrected) == 2


def test_control_a_failing_target_function_is_called_once(left_out: WithoutCorrection) -> None:
    assert calls_of_a_failing_target(left_out("event_targets")) == 1


def waits(seconds: int, **fields: object) -> dict[str, Any]:
    wait = {"Type": "Wait", "Seconds": seconds, "End": True}
    return {"StartAt": "W", "States": {"W": wait}, **fields}


FAILS = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}


@pytest.mark.parametrize(
    ("definition", "stop", "status"),
    [
        (waits(0), False, "SUCCEEDED"),
        (FAILS, False, "FAILED"),
        (waits(9), True, "ABORTED"),
        (waits(9, TimeoutSeconds=1), False, "TIMED_OUT"),
    ],
)
def test_every_end_of_an_execution_sends_one_event(
    corrected: Workbench,
    definition: dict[str, Any],
    stop: bool,  # noqa: FBT001 - a column of the table above
    status: str,
) -> None:
    events, queues = corrected.aws.client("events"), corrected.aws.client("sqs")
    machine = corrected.machine(definition)
    name = machine.rsplit(":", 1)[-1]
    queue = queues.create_queue(QueueName=name)["QueueUrl"]
    attributes = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "stateMachineArn": [machine],
            "status": ["SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"],
        },
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    target = {"Id": "1", "Arn": attributes["Attributes"]["QueueArn"]}
    events.put_targets(Rule=name, Targets=[target])
    started = corrected.workflows.start_execution(stateMachineArn=machine, input="{}")
    if stop:
        corrected.workflows.stop_execution(executionArn=started["executionArn"])
    ended = corrected.wait(started["executionArn"])
    found = queues.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=2)
    details = [json.loads(message["Body"])["detail"] for message in found["Messages"]]
    assert ended.status == status
    assert [(detail["executionArn"], detail["status"]) for detail in details] == [
        (ended.arn, status)
    ]
