"""Parts of a service that are asked for: administration, lifecycle events, watched locks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from app import build
from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import one, resources

# `LockService(administration=True)`: three functions more, each with a role of its own.

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("function", "handler"),
    [
        ("Inspect", "inspect"),
        ("ForceRelease", "force_release"),
        ("SetLimit", "set_limit"),
        ("Pace", "pace"),
    ],
)
def test_a_function_that_is_asked_for_runs_its_handler_and_is_an_output(
    everything: Json, function: str, handler: str
) -> None:
    _, made = one(everything, "AWS::Lambda::Function", function)
    assert made["Properties"]["Handler"] == f"lambdas.{handler}.handler"
    assert {f"{function}Function{kind}" for kind in ("Name", "Arn")} <= set(everything["Outputs"])


# `LockService(lifecycle_events=True)`: a stream and one function more, and nothing else.


@pytest.fixture(scope="module")
def events_template(tmp_path_factory: pytest.TempPathFactory) -> Json:
    context = {"lifecycle_events": "true"}
    stack = build(App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context=context))
    return dict(Template.from_stack(stack).to_json())


def test_the_functions_of_the_calls_and_their_roles_are_the_same_with_and_without(
    events_template: Json, lock_template: Json
) -> None:
    for kind in ("AWS::Lambda::Function", "AWS::IAM::Policy", "AWS::IAM::Role"):
        without, with_events = resources(lock_template, kind), resources(events_template, kind)
        assert {name for name in with_events if "Publish" not in name} == set(without)
        assert {name: with_events[name] for name in without} == without
    [table] = resources(events_template, "AWS::DynamoDB::Table").values()
    [plain] = resources(lock_template, "AWS::DynamoDB::Table").values()
    stream = table["Properties"].pop("StreamSpecification")
    assert stream == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table == plain


def test_lambda_leaves_out_waiters_without_a_version_and_claims_that_no_one_reaps(
    events_template: Json,
) -> None:
    [source] = [
        each["Properties"]
        for name, each in resources(events_template, "AWS::Lambda::EventSourceMapping").items()
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


def test_an_alarm_tells_when_events_are_not_told(everything: Json) -> None:
    alarms = {
        each["Properties"]["Metrics"][0]["MetricStat"]["Metric"]["MetricName"]
        for name, each in resources(everything, "AWS::CloudWatch::Alarm").items()
        if "Publish" in name
    }
    assert alarms == {"Errors", "Throttles"}


def test_a_table_without_a_stream_is_refused(tmp_path: Path) -> None:
    events_stack = Stack(App(outdir=str(tmp_path)), "Own")
    table = dynamodb.Table.from_table_name(events_stack, "Table", "locks")
    with pytest.raises(InvalidRequest, match="lifecycle_events: must be False for a table without"):
        LockService(events_stack, "Locks", table=table, lifecycle_events=True)


# `LockMonitoring(watch=[…])`: a scheduled function measures waits, those of clients included.

WATCHED = ["deploy/*", "nightly report"]


def monitored(outdir: Path, **props: Any) -> LockMonitoring:  # noqa: ANN401 - of the construct
    stack = Stack(App(outdir=str(outdir)), "Single")
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    return LockMonitoring(stack, "Monitoring", service=locks, **props)


def template_of(monitoring: LockMonitoring) -> Json:
    return dict(Template.from_stack(Stack.of(monitoring)).to_json())


@pytest.fixture(scope="module")
def watched_template(tmp_path_factory: pytest.TempPathFactory) -> Json:
    stack = Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "Watching")
    LockMonitoring(
        stack,
        "Monitoring",
        service=LockService.from_stack(stack, "Locks", stack_name="Fairlock"),
        alarm_topic=sns.Topic(stack, "Topic", enforce_ssl=True),
        alarms=LockAlarms(current_wait=Duration.minutes(10)),
        watch=WATCHED,
    )
    return dict(Template.from_stack(stack).to_json())


def test_a_schedule_invokes_a_function_that_may_only_read_the_table(
    watched_template: Json,
) -> None:
    [(name, function)] = resources(watched_template, "AWS::Lambda::Function").items()
    assert function["Properties"]["Handler"] == "lambdas.watch.handler"
    variables = function["Properties"]["Environment"]["Variables"]
    assert json.loads(variables["FAIRLOCK_WATCHED"]) == WATCHED
    assert "LockTableName" in variables["FAIRLOCK_TABLE_NAME"]["Ref"]
    assert "ServiceName" in variables["POWERTOOLS_SERVICE_NAME"]["Ref"]
    [rule] = resources(watched_template, "AWS::Events::Rule").values()
    assert rule["Properties"]["ScheduleExpression"] == "rate(5 minutes)"
    assert rule["Properties"]["Targets"][0]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    [policy] = resources(watched_template, "AWS::IAM::Policy").values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    actions = {
        action
        for statement in statements
        for action in (
            [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        )
    }
    assert {each for each in actions if each.startswith("dynamodb:")} == {
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:Scan",
    }
    assert not any(each.startswith(("states:", "lambda:")) for each in actions)


@pytest.mark.parametrize(
    ("watched", "command"),
    [
        ("deploy/*", "fairlock ls --waiting --prefix deploy/ --table "),
        ("nightly report", "fairlock show 'nightly report' --table "),
    ],
)
def test_each_watched_name_has_an_alarm_that_says_which_locks_to_look_at(
    watched_template: Json, watched: str, command: str
) -> None:
    alarms = [
        each["Properties"]
        for each in resources(watched_template, "AWS::CloudWatch::Alarm").values()
    ]
    [alarm] = [
        each for each in alarms if {"Name": "locks", "Value": watched} in each.get("Dimensions", [])
    ]
    assert (alarm["MetricName"], alarm["Threshold"]) == ("CurrentWait", 600_000)
    assert alarm["AlarmActions"]
    text = json.dumps(alarm["AlarmDescription"])
    assert f"waited too long for {watched} and is still waiting.\\nFirst: {command}" in text


def test_without_names_nothing_is_scheduled_and_nothing_costs(tmp_path: Path) -> None:
    made = template_of(monitored(tmp_path))
    assert not resources(made, "AWS::Lambda::Function")
    assert not resources(made, "AWS::Events::Rule")


def test_single_names_need_no_scan(tmp_path: Path) -> None:
    made = template_of(monitored(tmp_path, watch=["a", "b/c"]))
    policies = resources(made, "AWS::IAM::Policy")
    assert "dynamodb:Query" in json.dumps(policies)
    assert "dynamodb:Scan" not in json.dumps(policies)


@pytest.mark.parametrize(
    "watch",
    [
        *("deploy/*", [""], ["a*b"], ["*a"], [7], ["ä"], ["a "], ["a", "a"], ["x"] * 21, None),
        ["x" * 255],
        [f"{number:03}".ljust(200, "x") for number in range(15)],
    ],
)
def test_what_is_no_list_of_names_is_refused(tmp_path: Path, watch: Any) -> None:  # noqa: ANN401 - on purpose
    with pytest.raises(InvalidRequest, match=r"^watch: must be a list of at most 20 different"):
        monitored(tmp_path, watch=watch)


def test_the_longest_list_of_names_fits_the_variables_and_dimensions_of_aws(tmp_path: Path) -> None:
    watch = ["x" * 254 + "*", *(f"{number:03}".ljust(250, "x") for number in range(10))]
    made = template_of(monitored(tmp_path, alarms=LockAlarms(), watch=watch))
    [function] = resources(made, "AWS::Lambda::Function").values()
    variables = function["Properties"]["Environment"]["Variables"]
    assert len("".join(map(str, [*variables, *variables.values()]))) < 4_000


def test_a_function_that_fails_or_is_throttled_fires_an_alarm_because_it_measures_nothing(
    watched_template: Json,
) -> None:
    alarms = [
        each["Properties"]
        for each in resources(watched_template, "AWS::CloudWatch::Alarm").values()
    ]
    [function] = resources(watched_template, "AWS::Lambda::Function")
    found = [
        (each["MetricName"], each["Threshold"])
        for each in alarms
        if each.get("Dimensions", [{}])[0].get("Value") == {"Ref": function}
    ]
    assert sorted(found) == [("Errors", 1), ("Throttles", 1)]


def test_a_measurement_has_the_time_to_read_many_locks_and_is_not_made_late_or_again(
    watched_template: Json,
) -> None:
    """Lambda repeats an asynchronous invocation that fails, whatever EventBridge was told."""
    [function] = resources(watched_template, "AWS::Lambda::Function").values()
    assert function["Properties"]["Timeout"] == 240
    [config] = resources(watched_template, "AWS::Lambda::EventInvokeConfig").values()
    assert config["Properties"]["MaximumRetryAttempts"] == 0
    assert config["Properties"]["MaximumEventAgeInSeconds"] == 300


def test_names_that_differ_in_a_slash_have_an_alarm_each(tmp_path: Path) -> None:
    monitoring = monitored(tmp_path, alarms=LockAlarms(), watch=["a/b", "a-b"])
    assert {"Waiting for a/b", "Waiting for a-b"} <= set(monitoring.alarms)
