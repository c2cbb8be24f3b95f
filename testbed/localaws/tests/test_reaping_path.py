"""From the end of an execution to a function, all made by CloudFormation as the reaper is."""

import json
import time
from pathlib import Path
from typing import Any

from testbed.localaws.workbench import ROLE_ARN, Workbench

SOURCE = """
import json, os
def handler(event, context):
    with open(os.environ['NOTES'], 'a') as notes:
        for record in event['Records']:
            notes.write(json.dumps(json.loads(record['body'])['detail']) + '\\n')
    return {'batchItemFailures': []}
"""


def template(machine: str, notes: str) -> dict[str, Any]:
    """A rule for the machine's ends, a queue, its dead-letter queue, and a function."""
    sends = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["Queue", "Arn"]},
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }
    pattern = {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["FAILED", "TIMED_OUT", "ABORTED"],
            "stateMachineArn": [machine],
        },
    }
    return {
        "Letters": resource(
            "SQS::Queue", SqsManagedSseEnabled=True, MessageRetentionPeriod=1_209_600
        ),
        "Queue": resource(
            "SQS::Queue",
            SqsManagedSseEnabled=True,
            VisibilityTimeout=120,
            RedrivePolicy={
                "deadLetterTargetArn": {"Fn::GetAtt": ["Letters", "Arn"]},
                "maxReceiveCount": 5,
            },
        ),
        "Policy": resource(
            "SQS::QueuePolicy",
            Queues=[{"Ref": "Queue"}],
            PolicyDocument={"Version": "2012-10-17", "Statement": [sends]},
        ),
        "Rule": resource(
            "Events::Rule",
            EventPattern=pattern,
            Targets=[
                {
                    "Id": "Queue",
                    "Arn": {"Fn::GetAtt": ["Queue", "Arn"]},
                    "DeadLetterConfig": {"Arn": {"Fn::GetAtt": ["Letters", "Arn"]}},
                    "RetryPolicy": {"MaximumRetryAttempts": 3},
                }
            ],
        ),
        "Function": resource(
            "Lambda::Function",
            Runtime="python3.13",
            Handler="index.handler",
            Role=ROLE_ARN,
            Timeout=20,
            Code={"ZipFile": SOURCE},
            Environment={"Variables": {"NOTES": notes}},
        ),
        "Mapping": resource(
            "Lambda::EventSourceMapping",
            BatchSize=10,
            EventSourceArn={"Fn::GetAtt": ["Queue", "Arn"]},
            FunctionName={"Ref": "Function"},
            FunctionResponseTypes=["ReportBatchItemFailures"],
        ),
    }


def resource(kind: str, **properties: object) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def deploy(bench: Workbench, stack: str, resources: dict[str, Any]) -> dict[str, str]:
    """Create a stack; logical id -> physical id."""
    cloudformation = bench.aws.client("cloudformation")
    body = json.dumps({"Resources": resources})
    cloudformation.create_stack(StackName=stack, TemplateBody=body)
    settings = {"Delay": 0.05, "MaxAttempts": 200}
    cloudformation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig=settings)
    found = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    return {item["LogicalResourceId"]: item["PhysicalResourceId"] for item in found}


def test_the_end_of_a_watched_execution_reaches_the_function(corrected: Workbench) -> None:
    notes = corrected.aws.home / "ends"
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    watched, other = corrected.machine(fails), corrected.machine(fails)
    ids = deploy(corrected, "reaping", template(watched, str(notes)))
    for machine in (other, watched):
        started = corrected.workflows.start_execution(stateMachineArn=machine, input='{"a": 1}')
        ended = corrected.wait(started["executionArn"])
    detail = the_only_line(notes)
    described = corrected.workflows.describe_execution(executionArn=ended.arn)
    assert {name: value for name, value in detail.items() if value is not None} == {
        "executionArn": ended.arn,
        "stateMachineArn": watched,
        "name": ended.arn.rsplit(":", 1)[-1],
        "status": "FAILED",
        "startDate": round(described["startDate"].timestamp() * 1000),
        "stopDate": round(described["stopDate"].timestamp() * 1000),
        "input": '{"a": 1}',
        "inputDetails": {"included": True},
        "redriveCount": 0,
        "redriveStatus": "REDRIVABLE",
        "redriveStatusReason": "Execution is FAILED and is redrivable",
        "error": "E",
        "cause": "c",
    }
    assert attributes(corrected, ids["Queue"]) == {
        "VisibilityTimeout": "120",
        "MessageRetentionPeriod": "345600",
        "SqsManagedSseEnabled": "true",
        "maxReceiveCount": 5,
        "policy": "events.amazonaws.com",
    }
    assert attributes(corrected, ids["Letters"]) == {
        "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "1209600",
        "SqsManagedSseEnabled": "true",
    }


def the_only_line(notes: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and not (notes.exists() and notes.read_text()):
        time.sleep(0.01)
    (line,) = notes.read_text().splitlines()
    return dict(json.loads(line))


def attributes(bench: Workbench, queue_url: str) -> dict[str, Any]:
    found = bench.queues.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])
    plain = ("VisibilityTimeout", "MessageRetentionPeriod", "SqsManagedSseEnabled")
    shown: dict[str, Any] = {name: found["Attributes"][name] for name in plain}
    if "RedrivePolicy" in found["Attributes"]:
        policy = json.loads(found["Attributes"]["RedrivePolicy"])
        shown["maxReceiveCount"] = policy["maxReceiveCount"]
    if "Policy" in found["Attributes"]:
        (statement,) = json.loads(found["Attributes"]["Policy"])["Statement"]
        shown["policy"] = statement["Principal"]["Service"]
    return shown
