"""`LockService(pace=True)` and the state `Pace`: what is deployed, and what is refused at synth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template

from app import build
from fairlock.cdk import LockService, Pace
from fairlock.errors import InvalidRequest
from tests.unit.cdk.template import one, resources
from tests.unit.cdk.test_administration import actions_of
from tests.unit.cdk.test_security import findings

Json = dict[str, Any]
MINUTE = Duration.minutes(1)
HERE = Environment(account="123456789012", region="us-east-1")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    app = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context={"pace": "true"})
    stack = build(app)
    stack.locks.grant_pace(iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal()))
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return dict(Template.from_stack(stack).to_json())


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "User", env=HERE)


@pytest.fixture(scope="module")
def locks(user: Stack) -> LockService:
    return LockService(user, "Locks", pace=True)


def test_by_default_there_is_no_such_function(lock_template: Json) -> None:
    handlers = {
        function["Properties"]["Handler"]
        for function in resources(lock_template, "AWS::Lambda::Function").values()
    }
    assert "lambdas.pace.handler" not in handlers


def test_its_role_may_read_and_update_items_and_nothing_else(template: Json) -> None:
    assert actions_of(template, "Pace") == {"dynamodb:UpdateItem", "dynamodb:GetItem"}
    _, made = one(template, "AWS::Lambda::Function", "Pace")
    assert made["Properties"]["Handler"] == "lambdas.pace.handler"
    assert {"PaceFunctionName", "PaceFunctionArn"} <= set(template["Outputs"])


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    """CDK lets the role of this test invoke each version of the function."""
    assert {path.split("/")[1] for _, path in findings(stack)} <= {"Caller"}


def states_of(user: Stack, construct_id: str, body: sfn.IChainable, **machine: Any) -> Json:  # noqa: ANN401 - a machine's
    made = sfn.StateMachine(
        user,
        construct_id,
        definition_body=sfn.DefinitionBody.from_chainable(body),
        **machine,
    )
    resource: Any = made.node.default_child
    text = user.resolve(resource.definition_string)
    if isinstance(text, dict):
        text = "".join(part if isinstance(part, str) else "x" for part in text["Fn::Join"][1])
    return dict(json.loads(text)["States"])


@pytest.mark.parametrize("language", [sfn.QueryLanguage.JSONATA, sfn.QueryLanguage.JSON_PATH])
def test_it_is_a_call_and_a_wait_in_either_language(
    user: Stack, locks: LockService, language: sfn.QueryLanguage
) -> None:
    in_path = language == sfn.QueryLanguage.JSON_PATH
    name = sfn.JsonPath.string_at("$.vendor") if in_path else "{% $states.input.vendor %}"
    pace = Pace(
        user, f"Vendor{language.name}", service=locks, pace_name=name, rate=(10, MINUTE), burst=2
    )
    states = states_of(user, f"Machine{language.name}", pace, query_language=language)
    enter, reserve, choice, too_late, wait = (
        states[f"Vendor{language.name}: {purpose}"]
        for purpose in ("Enter", "Reserve", "Reserved?", "Too late", "Wait")
    )
    [variable] = enter["Assign"]
    assert enter["Assign"][variable] == {
        "pace_name": "{% $states.input.vendor %}",
        "reservation_id": "{% $uuid() %}",
    }
    payload = reserve["Arguments"]["Payload"]
    assert payload["rate"] == [10, 60]
    assert (payload["burst"], payload["max_wait_seconds"]) == (2, 1800)
    assert wait["Seconds"] == f"{{% ${variable}.wait_seconds %}}"
    assert choice["Choices"][0]["Next"].endswith(": Wait")
    assert choice["Default"].endswith(": Too late")
    assert too_late["Error"] == "SlotTooLate"
    for state in (enter, reserve, choice, wait):
        assert state.get("Output", "{% $states.input %}") == "{% $states.input %}"


def test_a_refusal_may_go_elsewhere(user: Stack, locks: LockService) -> None:
    skipped = sfn.Pass.jsonata(user, "Skipped")
    pace = Pace(
        user,
        "Skips",
        service=locks,
        pace_name="report",
        rate=(1, Duration.hours(1)),
        max_wait=Duration.seconds(0),
        on_too_late=skipped,
    )
    work = sfn.Pass.jsonata(user, "SkipsWork")
    states = states_of(user, "MachineSkips", pace.next(work))
    assert states["Skips: Reserved?"]["Default"] == "Skipped"
    assert states["Skips: Wait"]["Next"] == "SkipsWork"
    assert "Skips: Too late" not in states


def test_a_service_of_another_stack_serves_too(user: Stack) -> None:
    shared = LockService.from_stack(user, "Shared", stack_name="Fairlock")
    Pace(user, "OfShared", service=shared, pace_name="vendor", rate=(1, MINUTE))
    parameters = Template.from_stack(user).to_json()["Parameters"].values()
    assert "/fairlock/Fairlock/PaceFunctionArn" in {
        parameter.get("Default") for parameter in parameters
    }


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"rate": (0, MINUTE)}, "rate"),
        ({"rate": (-1, MINUTE)}, "rate"),
        ({"rate": (10, 60)}, "rate"),
        ({"rate": (10, Duration.days(32))}, "rate"),
        ({"rate": 10}, "rate"),
        ({"rate": (1_000, Duration.seconds(1))}, "rate"),
        ({"rate": (1, Duration.millis(1_500))}, "rate"),
        ({"burst": 0}, "burst"),
        ({"burst": "{% 2 %}"}, "burst"),
        ({"max_wait": Duration.days(8)}, "max_wait"),
        ({"max_wait": 30}, "max_wait"),
        ({"pace_name": ""}, "pace_name"),
        ({"pace_name": "n" * 513}, "pace_name"),
        ({"pace_name": "$.vendor"}, "pace_name"),
        ({"pace_name": 7}, "pace_name"),
        ({"on_too_late": "Skipped"}, "on_too_late"),
        ({"service": None}, "service"),
        ({"construct_id": ""}, "construct_id"),
    ],
)
def test_wrong_use_is_told_at_synth(
    user: Stack, locks: LockService, wrong: dict[str, Any], field: str
) -> None:
    arguments = {
        "construct_id": "Wrong",
        "service": locks,
        "pace_name": "vendor",
        "rate": (10, MINUTE),
        **wrong,
    }
    with pytest.raises(InvalidRequest) as refused:
        Pace(user, **arguments)
    assert refused.value.field == field
    assert user.node.try_find_child("Wrong") is None


def test_a_service_without_the_function_says_how_to_get_it(user: Stack) -> None:
    without = LockService(user, "Without")
    with pytest.raises(InvalidRequest, match="pace: must be True where the service is made"):
        Pace(user, "None", service=without, pace_name="vendor", rate=(10, MINUTE))
    with pytest.raises(InvalidRequest, match="pace: must be True"):
        without.grant_pace(iam.Role(user, "R", assumed_by=iam.AccountRootPrincipal()))
