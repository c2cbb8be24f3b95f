"""`LockService(administration=True)`: three functions more, each with a role of its own."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template

from app import build
from tests.unit.cdk.template import one, resources
from tests.unit.cdk.test_security import findings

Json = dict[str, Any]
NAMES = {"Inspect": "inspect", "ForceRelease": "force_release", "SetLimit": "set_limit"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    app = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context={"administration": "true"})
    stack = build(app)
    grants = {
        "Many": stack.locks.grant_inspect,
        "Few": stack.locks.grant_force_release,
        "Some": stack.locks.grant_set_limit,
    }
    for name, grant in grants.items():
        grant(iam.Role(stack, name, assumed_by=iam.AccountRootPrincipal()))
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return dict(Template.from_stack(stack).to_json())


def actions_of(template: Json, function: str) -> set[str]:
    _, policy = one(template, "AWS::IAM::Policy", f"{function}RoleDefaultPolicy")
    found: set[str] = set()
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        actions = statement["Action"]
        found |= {actions} if isinstance(actions, str) else {*actions}
    return {action for action in found if not action.startswith(("xray:", "logs:"))}


def test_by_default_there_is_none(lock_template: Json) -> None:
    handlers = {
        function["Properties"]["Handler"]
        for function in resources(lock_template, "AWS::Lambda::Function").values()
    }
    assert not handlers & {f"lambdas.{name}.handler" for name in NAMES.values()}


def test_each_role_may_do_just_what_its_handler_does(template: Json) -> None:
    on_table = {
        "Inspect": {"GetItem", "Query", "Scan"},
        "ForceRelease": {"UpdateItem", "DeleteItem", "Query", "GetItem"},
        "SetLimit": {"UpdateItem", "DeleteItem", "Query", "GetItem"},
    }
    tells = {"DescribeExecution", "SendTaskSuccess"}
    on_workflows = {"Inspect": set(), "ForceRelease": tells, "SetLimit": tells}
    for function, actions in on_table.items():
        assert actions_of(template, function) == {
            *(f"dynamodb:{action}" for action in actions),
            *(f"states:{action}" for action in on_workflows[function]),
        }
        _, made = one(template, "AWS::Lambda::Function", function)
        assert made["Properties"]["Handler"] == f"lambdas.{NAMES[function]}.handler"
        for kind in ("Name", "Arn"):
            assert f"{function}Function{kind}" in template["Outputs"]


def test_cdk_nag_finds_nothing(stack: Stack) -> None:
    """CDK lets the roles of this test invoke each version of a function."""
    found = {path for _, path in findings(stack)}
    assert {path.split("/")[1] for path in found} <= {"Many", "Few", "Some"}


def test_each_is_granted_by_itself(template: Json) -> None:
    invoked = {
        name[:-8].removesuffix("DefaultPolicy"): str(policy["Properties"]["PolicyDocument"])
        for name, policy in resources(template, "AWS::IAM::Policy").items()
        if name.startswith(("Many", "Few", "Some"))
    }
    for role, allowed in {"Many": "Inspect", "Few": "ForceRelease", "Some": "SetLimit"}.items():
        assert {name for name in NAMES if f"Locks{name}" in invoked[role]} == {allowed}
