"""The demo's template: the same task bare and in both guards, with no right too many."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Match, Template

from fairlock.cdk import LockService
from infra.demo_stack import DemoStack


@pytest.fixture(scope="module")
def template() -> Template:
    app = App()
    locks = LockService(Stack(app, "Fairlock"), "Locks")
    return Template.from_stack(DemoStack(app, "FairlockDemo", locks=locks))


def definition(template: Template, output: str) -> dict[str, Any]:
    """The definition of the machine that an output refers to."""
    found = template.to_json()
    resource = found["Resources"][found["Outputs"][output]["Value"]["Ref"]]
    pieces = resource["Properties"]["DefinitionString"]["Fn::Join"][1]
    text = "".join(p if isinstance(p, str) else "-".join(map(str, p.values())) for p in pieces)
    machine: dict[str, Any] = json.loads(text)
    return machine


def states(template: Template, output: str) -> list[dict[str, Any]]:
    return list(definition(template, output)["States"].values())


def charges(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        state
        for state in machine["States"].values()
        if "ChargeFunction" in json.dumps(state.get("Arguments", {}))
    ]


GUARDED = ("GuardedStateMachineArn", "PollingStateMachineArn")
ALL = ("UnguardedStateMachineArn", *GUARDED)


@pytest.mark.parametrize("output", GUARDED)
def test_every_workflow_runs_the_same_task_and_the_guarded_ones_pass_their_token(
    template: Template, output: str
) -> None:
    (bare,) = charges(definition(template, "UnguardedStateMachineArn"))
    (guarded,) = charges(definition(template, output))
    token = guarded["Arguments"]["Payload"].pop("fencing_token")
    assert token.endswith(".fencing_token %}")
    assert bare["Arguments"] == guarded["Arguments"]
    assert bare["Output"] == guarded["Output"] == "{% $states.result.Payload %}"


def test_only_the_guarded_workflows_ask_for_a_lock_and_for_the_same_one(
    template: Template,
) -> None:
    assert len(definition(template, "UnguardedStateMachineArn")["States"]) == 1
    for output in GUARDED:
        guarded = json.dumps(definition(template, output))
        assert "'account/' & $lock_name_part($states.input.account_id, " in guarded


def test_one_guard_sleeps_on_a_task_token_and_the_other_polls(template: Template) -> None:
    resources = {
        output: {
            str(state.get("Resource")).rsplit(".", 1)[-1] for state in states(template, output)
        }
        for output in GUARDED
    }
    sleeping = [output for output in GUARDED if "waitForTaskToken" in resources[output]]
    assert sleeping == ["GuardedStateMachineArn"]


def test_who_waits_in_the_queue_asks_again_as_often_as_the_output_says(
    template: Template,
) -> None:
    timeouts = [
        state["TimeoutSeconds"]
        for state in states(template, "GuardedStateMachineArn")
        if "waitForTaskToken" in str(state.get("Resource"))
    ]
    fallback = int(template.to_json()["Outputs"]["FallbackSeconds"]["Value"])
    assert timeouts
    assert all(fallback // 2 < timeout <= fallback for timeout in timeouts)


@pytest.mark.parametrize("output", ALL)
def test_a_charge_is_never_repeated(template: Template, output: str) -> None:
    (charge,) = charges(definition(template, output))
    assert "Retry" not in charge


def test_the_task_may_read_and_put_account_rows_and_write_its_log(template: Template) -> None:
    (role,) = template.find_resources("AWS::Lambda::Function").values()
    role_id = role["Properties"]["Role"]["Fn::GetAtt"][0]
    policies = template.find_resources(
        "AWS::IAM::Policy", {"Properties": {"Roles": [{"Ref": role_id}]}}
    )
    (policy,) = policies.values()
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    assert [(s["Action"], next(iter(s["Resource"]))) for s in statements] == [
        (["logs:CreateLogStream", "logs:PutLogEvents"], "Fn::GetAtt"),
        (["dynamodb:GetItem", "dynamodb:PutItem"], "Fn::GetAtt"),
    ]
    assert "ManagedPolicyArns" not in template.to_json()["Resources"][role_id]["Properties"]


def test_nothing_is_left_behind_when_the_stack_goes(template: Template) -> None:
    resources = template.to_json()["Resources"].values()
    assert {r.get("DeletionPolicy", "Delete") for r in resources} == {"Delete"}


def test_the_outputs_are_what_the_program_reads(template: Template) -> None:
    assert set(template.to_json()["Outputs"]) == {
        "AccountsTableName",
        "ChargeFunctionName",
        "UnguardedStateMachineArn",
        "GuardedStateMachineArn",
        "PollingStateMachineArn",
        "LeaseSeconds",
        "FallbackSeconds",
    }
    template.has_output("LeaseSeconds", {"Value": Match.exact("10")})
    template.has_output("FallbackSeconds", {"Value": Match.exact("10")})
