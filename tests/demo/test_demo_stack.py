"""The demo's template: the same task twice, once inside a guard, with no right too many."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Match, Template

from infra.demo_stack import DemoStack
from leasehold.cdk import LockService


@pytest.fixture(scope="module")
def template() -> Template:
    app = App()
    locks = LockService(Stack(app, "Leasehold"), "Locks")
    return Template.from_stack(DemoStack(app, "LeaseholdDemo", locks=locks))


def definition(template: Template, output: str) -> dict[str, Any]:
    """The definition of the machine that an output refers to."""
    found = template.to_json()
    resource = found["Resources"][found["Outputs"][output]["Value"]["Ref"]]
    pieces = resource["Properties"]["DefinitionString"]["Fn::Join"][1]
    text = "".join(p if isinstance(p, str) else "-".join(map(str, p.values())) for p in pieces)
    machine: dict[str, Any] = json.loads(text)
    return machine


def charges(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        state
        for state in machine["States"].values()
        if "ChargeFunction" in json.dumps(state.get("Arguments", {}))
    ]


def test_both_workflows_run_the_same_task_and_only_one_passes_a_token(template: Template) -> None:
    (bare,) = charges(definition(template, "UnguardedStateMachineArn"))
    (guarded,) = charges(definition(template, "GuardedStateMachineArn"))
    token = guarded["Arguments"]["Payload"].pop("fencing_token")
    assert token.endswith(".fencing_token %}")
    assert bare["Arguments"] == guarded["Arguments"]
    assert bare["Output"] == guarded["Output"] == "{% $states.result.Payload %}"


def test_only_the_guarded_workflow_asks_for_a_lock(template: Template) -> None:
    assert len(definition(template, "UnguardedStateMachineArn")["States"]) == 1
    guarded = json.dumps(definition(template, "GuardedStateMachineArn"))
    assert "{% 'account/' & $states.input.account_id %}" in guarded


def test_a_charge_is_never_repeated(template: Template) -> None:
    for output in ("UnguardedStateMachineArn", "GuardedStateMachineArn"):
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
        "LeaseSeconds",
    }
    template.has_output("LeaseSeconds", {"Value": Match.exact("6")})
