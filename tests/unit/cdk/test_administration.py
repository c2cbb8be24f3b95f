"""Parts of a service that are asked for: administration, lifecycle events, watched locks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sns as sns

from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.template import actions, one, properties, resources, template_of

Json = dict[str, Any]


def test_each_function_that_is_asked_for_runs_its_handler_and_is_an_output(
    everything: Json,
) -> None:
    handlers = {"ForceRelease": "force_release", "SetLimit": "set_limit"}
    for function in ("Inspect", "ForceRelease", "SetLimit", "Pace"):
        _, made = one(everything, "AWS::Lambda::Function", function)
        handler = handlers.get(function, function.lower())
        assert made["Properties"]["Handler"] == f"lambdas.{handler}.handler"
        outputs = {f"{function}Function{kind}" for kind in ("Name", "Arn")}
        assert outputs <= set(everything["Outputs"])


# `LockService(lifecycle_events=True)`: a stream and one function more.


def test_lambda_leaves_out_waiters_without_a_version_and_claims_that_no_one_reaps(
    everything: Json,
) -> None:
    [table] = properties(everything, "AWS::DynamoDB::Table")
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    [source] = properties(everything, "AWS::Lambda::EventSourceMapping", "LocksPublish")
    patterns = [json.loads(each["Pattern"]) for each in source["FilterCriteria"]["Filters"]]
    assert [(pattern.get("eventName"), list(pattern["dynamodb"])) for pattern in patterns] == [
        (None, ["Keys"]),
        (None, ["Keys", "NewImage"]),
        (["REMOVE"], ["Keys", "OldImage"]),
    ]
    assert source["BisectBatchOnFunctionError"] is True
    assert "MaximumRetryAttempts" not in source  # Until the record is a day old.


def test_a_table_without_a_stream_is_refused(own: Stack) -> None:
    table = dynamodb.Table.from_table_name(own, "Table", "locks")
    with pytest.raises(InvalidRequest, match="lifecycle_events: must be False for a table without"):
        LockService(own, "Locks", table=table, lifecycle_events=True)


# `LockMonitoring(watch=[…])`: a scheduled function measures waits, those of clients included.

WATCHED = ["deploy/*", "nightly report"]


@pytest.fixture(scope="module")
def watching(new_app: NewApp) -> Json:
    stack = Stack(new_app(), "Watching")
    LockMonitoring(
        stack,
        "Monitoring",
        service=LockService.from_stack(stack, "Locks", stack_name="Fairlock"),
        alarm_topic=sns.Topic(stack, "Topic", enforce_ssl=True),
        alarms=LockAlarms(current_wait=Duration.minutes(10)),
        watch=WATCHED,
    )
    return template_of(stack)


def test_a_schedule_invokes_a_function_that_may_only_read_the_table_and_is_not_repeated(
    watching: Json,
) -> None:
    """Lambda repeats an asynchronous invocation that fails, whatever EventBridge was told."""
    [(name, function)] = resources(watching, "AWS::Lambda::Function").items()
    assert function["Properties"]["Handler"] == "lambdas.watch.handler"
    variables = function["Properties"]["Environment"]["Variables"]
    assert json.loads(variables["FAIRLOCK_WATCHED"]) == WATCHED
    assert "LockTableName" in variables["FAIRLOCK_TABLE_NAME"]["Ref"]
    assert "ServiceName" in variables["POWERTOOLS_SERVICE_NAME"]["Ref"]
    [rule] = properties(watching, "AWS::Events::Rule")
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    assert rule["Targets"][0]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    assert function["Properties"]["Timeout"] == 240
    [config] = properties(watching, "AWS::Lambda::EventInvokeConfig")
    assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 300)
    services = ("dynamodb:", "states:", "lambda:")
    may = {each for each in actions(watching) if each.startswith(services)}
    assert may == {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:Scan"}


@pytest.mark.parametrize(
    ("watched", "command"),
    [
        ("deploy/*", "fairlock ls --waiting --prefix deploy/ --table "),
        ("nightly report", "fairlock show 'nightly report' --table "),
    ],
)
def test_each_watched_name_has_an_alarm_that_says_which_locks_to_look_at(
    watching: Json, watched: str, command: str
) -> None:
    dimension = {"Name": "locks", "Value": watched}
    alarms = properties(watching, "AWS::CloudWatch::Alarm")
    [alarm] = [each for each in alarms if dimension in each.get("Dimensions", [])]
    assert (alarm["MetricName"], alarm["Threshold"]) == ("CurrentWait", 600_000)
    assert alarm["AlarmActions"]
    text = json.dumps(alarm["AlarmDescription"])
    assert f"waited too long for {watched} and is still waiting.\\nFirst: {command}" in text


@pytest.mark.parametrize("watch", [[], ["a", "b/c"]], ids=["no names", "single names"])
def test_what_is_not_watched_is_neither_scheduled_nor_scanned_for(
    own: Stack, imported: SharedLockService, watch: list[str]
) -> None:
    LockMonitoring(own, "Monitoring", service=imported, watch=watch)
    made = template_of(own)
    for kind in ("AWS::Lambda::Function", "AWS::Events::Rule"):
        assert len(resources(made, kind)) == bool(watch)
    assert ("dynamodb:Query" in actions(made)) == bool(watch)
    assert "dynamodb:Scan" not in actions(made)


def test_what_is_no_list_of_names_is_refused(own: Stack, imported: SharedLockService) -> None:
    wrong: list[Any] = [
        *("deploy/*", [""], ["a*b"], ["*a"], [7], ["ä"], ["a "], ["a", "a"], ["x"] * 21, None),
        ["x" * 255],
        [f"{number:03}".ljust(200, "x") for number in range(15)],
    ]
    for watch in wrong:
        with pytest.raises(InvalidRequest, match=r"^watch: must be a list of at most 20 different"):
            LockMonitoring(own, "Monitoring", service=imported, watch=watch)


def test_the_longest_list_fits_the_variables_of_aws_and_names_like_others_have_their_alarms(
    own: Stack, imported: SharedLockService
) -> None:
    watch = ["x" * 254 + "*", *(f"{number:03}".ljust(250, "x") for number in range(10))]
    LockMonitoring(own, "Longest", service=imported, watch=watch)
    alike = LockMonitoring(
        own, "Alike", service=imported, alarms=LockAlarms(), watch=["a/b", "a-b"]
    )
    assert {"Waiting for a/b", "Waiting for a-b"} <= set(alike.alarms)
    [function] = properties(template_of(own), "AWS::Lambda::Function", "Longest")
    variables = function["Environment"]["Variables"]
    assert len("".join(map(str, [*variables, *variables.values()]))) < 4_000


def test_a_function_that_fails_or_is_throttled_fires_an_alarm_because_it_measures_nothing(
    watching: Json,
) -> None:
    [function] = resources(watching, "AWS::Lambda::Function")
    found = [
        (each["MetricName"], each["Threshold"])
        for each in properties(watching, "AWS::CloudWatch::Alarm")
        if each.get("Dimensions", [{}])[0].get("Value") == {"Ref": function}
    ]
    assert sorted(found) == [("Errors", 1), ("Throttles", 1)]
