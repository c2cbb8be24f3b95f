"""Corrections event_targets and undelivered_events, and the status events of executions."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from testbed.localaws.workbench import Queue, Workbench

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


def calls_of_a_failing_target(bench: Workbench, *, patience_seconds: float) -> int:
    """How often a function was called that fails once, so long after its first call at most."""
    events, table = bench.aws.client("events"), bench.table()
    function = bench.function(FAILS_ONCE, Environment={"Variables": {"TABLE": table}}, Timeout=30)
    events.put_rule(Name=table, EventPattern=json.dumps({"source": [table]}))
    arn = bench.functions.get_function_configuration(FunctionName=function)["FunctionArn"]
    events.put_targets(Rule=table, Targets=[{"Id": "1", "Arn": arn}])
    events.put_events(Entries=[{"Source": table, "DetailType": "any", "Detail": "{}"}])
    assert wait_for_calls(bench, table, 1, seconds=30) == 1
    return wait_for_calls(bench, table, 2, seconds=patience_seconds)


def wait_for_calls(bench: Workbench, table: str, most: int, *, seconds: float) -> int:
    """The number of calls as soon as it is so high, or when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        item = bench.tables.get_item(TableName=table, Key={"pk": {"S": "calls"}}).get("Item")
        calls = int(item["n"]["N"]) if item else 0
        if calls >= most or time.monotonic() > deadline:
            return calls
        time.sleep(0.05)


def test_a_failing_target_function_is_tried_again(corrected: Workbench) -> None:
    assert calls_of_a_failing_target(corrected, patience_seconds=30) == 2


def test_control_a_failing_target_function_is_called_once(left_out: WithoutCorrection) -> None:
    """It would be tried again after a second."""
    assert calls_of_a_failing_target(left_out("event_targets"), patience_seconds=3) == 1


def queue_that_lets(
    bench: Workbench, rule: str, condition: Mapping[str, Mapping[str, str]] | None = None
) -> Queue:
    """A queue to which EventBridge may send what the rule selects, or what `condition` says."""
    rule_arn = f"arn:aws:events:us-east-1:000000000000:rule/{rule}"
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
        "Condition": condition or {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }
    only_tls = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "sqs:*",
        "Resource": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return bench.queue(Policy={"Version": "2012-10-17", "Statement": [statement, only_tls]})


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
    events = corrected.aws.client("events")
    machine = corrected.machine(definition)
    name = machine.rsplit(":", 1)[-1]
    queue = queue_that_lets(corrected, name)
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "stateMachineArn": [machine],
            "status": ["SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"],
        },
    }
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": queue.arn}])
    started = corrected.workflows.start_execution(stateMachineArn=machine, input="{}")
    for _ in range(2 if stop else 0):  # a second stop changes nothing and sends nothing
        corrected.workflows.stop_execution(executionArn=started["executionArn"])
    ended = corrected.wait(started["executionArn"])
    found = corrected.received(queue)
    details = [json.loads(message["Body"])["detail"] for message in found]
    assert ended.status == status
    assert [(detail["executionArn"], detail["status"]) for detail in details] == [
        (ended.arn, status)
    ]


def send_event(bench: Workbench, *targets: dict[str, Any]) -> tuple[str, Any]:
    """Send an event for which a new rule has these targets; the rule's ARN and the event's id."""
    events = bench.aws.client("events")
    name = f"rule-{time.monotonic_ns()}"
    arn = events.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))["RuleArn"]
    numbered = [{"Id": str(number), **target} for number, target in enumerate(targets)]
    events.put_targets(Rule=name, Targets=numbered)
    sent = events.put_events(Entries=[{"Source": name, "DetailType": "any", "Detail": "{}"}])
    return arn, sent["Entries"][0]["EventId"]


ACCOUNT = {"StringEquals": {"aws:SourceAccount": "000000000000"}}
OTHER_ACCOUNT = {"StringEquals": {"aws:SourceAccount": "111111111111"}}
OTHER_RULE = {"ArnEquals": {"aws:SourceArn": "arn:aws:events:us-east-1:000000000000:rule/other"}}


def queues_reached(bench: Workbench) -> list[bool]:
    """Which of four queues an event reaches: two refuse it, one has no policy, one lets it in."""
    queues = [queue_that_lets(bench, "", rule) for rule in (OTHER_ACCOUNT, OTHER_RULE)]
    queues += [bench.queue(), queue_that_lets(bench, "", ACCOUNT)]
    send_event(bench, *({"Arn": queue.arn} for queue in queues))
    return [bench.received(queue, seconds=0) != [] for queue in queues]


def test_an_event_reaches_only_queues_whose_policy_lets_it_in(corrected: Workbench) -> None:
    assert queues_reached(corrected) == [False, False, False, True]


def test_control_an_event_reaches_every_queue(left_out: WithoutCorrection) -> None:
    assert queues_reached(left_out("undelivered_events")) == [True, True, True, True]


def letters_of_undelivered_events(bench: Workbench) -> tuple[list[Any], list[Any]]:
    """What the dead-letter queue of three unreachable targets gets, and what it should get."""
    letters, silent = queue_that_lets(bench, "", ACCOUNT), bench.queue()
    errors = {
        silent.arn: "NO_PERMISSIONS",
        "arn:aws:sqs:us-east-1:000000000000:gone": "NO_RESOURCE",
        "arn:aws:lambda:us-east-1:000000000000:function:gone": "NO_RESOURCE",
    }
    rule, event = send_event(
        bench, *({"Arn": arn, "DeadLetterConfig": {"Arn": letters.arn}} for arn in errors)
    )
    found = []
    for message in bench.received(letters, seconds=0):
        labels = message.get("MessageAttributes", {}).items()
        values = {name: label["StringValue"] for name, label in labels}
        found.append((json.loads(message["Body"])["id"], values))
    expected = [
        (event, {"RULE_ARN": rule, "TARGET_ARN": target, "ERROR_CODE": error})
        for target, error in errors.items()
    ]
    return found, expected


def test_an_undelivered_event_goes_to_the_dead_letter_queue(corrected: Workbench) -> None:
    found, expected = letters_of_undelivered_events(corrected)
    assert found == expected


def test_control_an_undelivered_event_is_lost(left_out: WithoutCorrection) -> None:
    found, _ = letters_of_undelivered_events(left_out("undelivered_events"))
    assert found == []


def test_an_undelivered_event_without_dead_letter_queue_harms_nobody(corrected: Workbench) -> None:
    reached = queue_that_lets(corrected, "", ACCOUNT)
    silent = corrected.queue()
    send_event(
        corrected,
        {"Arn": silent.arn},
        {"Arn": silent.arn, "DeadLetterConfig": {"Arn": silent.arn}},
        {"Arn": reached.arn},
    )
    assert len(corrected.received(reached, seconds=0)) == 1
    assert corrected.received(silent, seconds=0) == []
