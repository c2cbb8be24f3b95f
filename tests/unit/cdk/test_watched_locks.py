"""`LockMonitoring(watch=[…])`: a scheduled function measures waits, those of clients included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import resources

Json = dict[str, Any]
WATCHED = ["deploy/*", "nightly report"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Json:
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


def test_a_schedule_invokes_a_function_that_may_only_read_the_table(template: Json) -> None:
    [(name, function)] = resources(template, "AWS::Lambda::Function").items()
    assert function["Properties"]["Handler"] == "lambdas.watch.handler"
    variables = function["Properties"]["Environment"]["Variables"]
    assert json.loads(variables["FAIRLOCK_WATCHED"]) == WATCHED
    assert "LockTableName" in variables["FAIRLOCK_TABLE_NAME"]["Ref"]
    assert "ServiceName" in variables["POWERTOOLS_SERVICE_NAME"]["Ref"]
    [rule] = resources(template, "AWS::Events::Rule").values()
    assert rule["Properties"]["ScheduleExpression"] == "rate(5 minutes)"
    assert rule["Properties"]["Targets"][0]["Arn"] == {"Fn::GetAtt": [name, "Arn"]}
    [policy] = resources(template, "AWS::IAM::Policy").values()
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
    template: Json, watched: str, command: str
) -> None:
    alarms = [each["Properties"] for each in resources(template, "AWS::CloudWatch::Alarm").values()]
    [alarm] = [
        each for each in alarms if {"Name": "locks", "Value": watched} in each.get("Dimensions", [])
    ]
    assert (alarm["MetricName"], alarm["Threshold"]) == ("CurrentWait", 600_000)
    assert alarm["AlarmActions"]
    text = json.dumps(alarm["AlarmDescription"])
    assert f"waited too long for {watched} and is still waiting.\\nFirst: {command}" in text


def test_without_names_nothing_is_scheduled_and_nothing_costs(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Single")
    LockMonitoring(
        stack, "Monitoring", service=LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    )
    template = dict(Template.from_stack(stack).to_json())
    assert not resources(template, "AWS::Lambda::Function")
    assert not resources(template, "AWS::Events::Rule")


def test_single_names_need_no_scan(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Single")
    LockMonitoring(
        stack,
        "Monitoring",
        service=LockService.from_stack(stack, "Locks", stack_name="Fairlock"),
        watch=["a", "b/c"],
    )
    policies = resources(dict(Template.from_stack(stack).to_json()), "AWS::IAM::Policy")
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
    stack = Stack(App(outdir=str(tmp_path)), "Single")
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    with pytest.raises(InvalidRequest, match=r"^watch: must be a list of at most 20 different"):
        LockMonitoring(stack, "Monitoring", service=locks, watch=watch)


def test_the_longest_list_of_names_fits_the_variables_and_dimensions_of_aws(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Single")
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    watch = ["x" * 254 + "*", *(f"{number:03}".ljust(250, "x") for number in range(10))]
    LockMonitoring(stack, "Monitoring", service=locks, alarms=LockAlarms(), watch=watch)
    made = dict(Template.from_stack(stack).to_json())
    [function] = resources(made, "AWS::Lambda::Function").values()
    variables = function["Properties"]["Environment"]["Variables"]
    assert len("".join(map(str, [*variables, *variables.values()]))) < 4_000


def test_a_function_that_fails_or_is_throttled_fires_an_alarm_because_it_measures_nothing(
    template: Json,
) -> None:
    alarms = [each["Properties"] for each in resources(template, "AWS::CloudWatch::Alarm").values()]
    [function] = resources(template, "AWS::Lambda::Function")
    found = [
        (each["MetricName"], each["Threshold"])
        for each in alarms
        if each.get("Dimensions", [{}])[0].get("Value") == {"Ref": function}
    ]
    assert sorted(found) == [("Errors", 1), ("Throttles", 1)]


def test_a_measurement_has_the_time_to_read_many_locks_and_is_not_made_late_or_again(
    template: Json,
) -> None:
    """Lambda repeats an asynchronous invocation that fails, whatever EventBridge was told."""
    [function] = resources(template, "AWS::Lambda::Function").values()
    assert function["Properties"]["Timeout"] == 240
    [config] = resources(template, "AWS::Lambda::EventInvokeConfig").values()
    assert config["Properties"]["MaximumRetryAttempts"] == 0
    assert config["Properties"]["MaximumEventAgeInSeconds"] == 300


def test_names_that_differ_in_a_slash_have_an_alarm_each(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Single")
    monitoring = LockMonitoring(
        stack,
        "Monitoring",
        service=LockService.from_stack(stack, "Locks", stack_name="Fairlock"),
        alarms=LockAlarms(),
        watch=["a/b", "a-b"],
    )
    assert {"Waiting for a/b", "Waiting for a-b"} <= set(monitoring.alarms)
