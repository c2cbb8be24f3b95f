"""`LockService(lifecycle_events=True)`: a stream and one function more, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk.assertions import Template

from app import build
from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import one, resources
from tests.unit.cdk.test_security import findings

Json = dict[str, Any]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    context = {"lifecycle_events": "true"}
    stack = build(App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context=context))
    LockMonitoring(stack, "Monitoring", service=stack.locks, alarms=LockAlarms())
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return dict(Template.from_stack(stack).to_json())


def test_the_functions_of_the_calls_and_their_roles_are_the_same_with_and_without(
    template: Json, lock_template: Json
) -> None:
    for kind in ("AWS::Lambda::Function", "AWS::IAM::Policy", "AWS::IAM::Role"):
        without, with_events = resources(lock_template, kind), resources(template, kind)
        assert {name for name in with_events if "Publish" not in name} == set(without)
        assert {name: with_events[name] for name in without} == without
    [table] = resources(template, "AWS::DynamoDB::Table").values()
    [plain] = resources(lock_template, "AWS::DynamoDB::Table").values()
    stream = table["Properties"].pop("StreamSpecification")
    assert stream == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table == plain


def test_the_function_reads_the_stream_and_locks_and_puts_events_and_nothing_else(
    template: Json,
) -> None:
    _, policy = one(template, "AWS::IAM::Policy", "PublishRoleDefaultPolicy")
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    named = [each["Action"] for each in statements]
    actions = {name for each in named for name in ([each] if isinstance(each, str) else each)}
    assert {name for name in actions if not name.startswith(("xray:", "logs:"))} == {
        "dynamodb:GetItem",
        "events:PutEvents",
        *(
            f"dynamodb:{action}"
            for action in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
        ),
    }
    [put] = [each["Resource"] for each in statements if each["Action"] == "events:PutEvents"]
    assert put["Fn::Join"][1][-1].endswith(":event-bus/default")


def test_lambda_leaves_out_waiters_without_a_version_and_claims_that_no_one_reaps(
    template: Json,
) -> None:
    [source] = [
        each["Properties"]
        for name, each in resources(template, "AWS::Lambda::EventSourceMapping").items()
        if "Publish" in name
    ]
    patterns = [json.loads(each["Pattern"]) for each in source["FilterCriteria"]["Filters"]]
    assert [(pattern.get("eventName"), list(pattern["dynamodb"])) for pattern in patterns] == [
        (None, ["Keys"]),
        (None, ["Keys", "NewImage"]),
        (["REMOVE"], ["Keys", "OldImage"]),
    ]
    assert source["BisectBatchOnFunctionError"] is True
    assert "MaximumRetryAttempts" not in source  # Until the record is a day old.


def test_it_follows_the_aws_solutions_rules(stack: Stack) -> None:
    assert findings(stack) == []


def test_an_alarm_tells_when_events_are_not_told(template: Json) -> None:
    alarms = {
        each["Properties"]["Metrics"][0]["MetricStat"]["Metric"]["MetricName"]
        for name, each in resources(template, "AWS::CloudWatch::Alarm").items()
        if "Publish" in name
    }
    assert alarms == {"Errors", "Throttles"}


def test_a_table_without_a_stream_is_refused(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Own")
    table = dynamodb.Table.from_table_name(stack, "Table", "locks")
    with pytest.raises(InvalidRequest, match="lifecycle_events: must be False for a table without"):
        LockService(stack, "Locks", table=table, lifecycle_events=True)
