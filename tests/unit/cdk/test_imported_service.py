"""A service of another stack: what may be done with it, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService
from fairlock.cdk.guard.standalone import FunctionsByArn
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import FUNCTION

KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-table"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Importing")


def allowed_by(stack: Stack) -> dict[str, str]:
    """The resources of each action that the only policy of the stack allows."""
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    allowed: dict[str, str] = {}
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            allowed[action] = str(statement["Resource"])
    return allowed


def test_a_client_may_use_the_table_of_another_stack_and_its_key(stack: Stack) -> None:
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock", encryption_key=key)
    locks.grant_client(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    allowed = allowed_by(stack)
    assert "LockTableName" in allowed["dynamodb:UpdateItem"]
    assert allowed["kms:Decrypt"] == KEY
    assert {"states:SendTaskSuccess", "states:DescribeExecution"} <= set(allowed)


def test_administration_reads_the_table_and_writes_two_ways_and_wakes_workflows(
    stack: Stack,
) -> None:
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    locks.grant_administration(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    on_table = ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")
    settings = ("DescribeTable", "DescribeTimeToLive")
    assert set(allowed_by(stack)) == {
        *(f"dynamodb:{action}" for action in (*on_table, *settings)),
        *("states:SendTaskSuccess", "states:DescribeExecution"),
        *("lambda:SendDurableExecutionCallbackSuccess", "lambda:GetDurableExecution"),
    }


def test_a_guard_in_another_region_than_its_service_is_refused(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    here, there = (
        Stack(app, region, env=Environment(account="123456789012", region=region))
        for region in ("us-east-1", "eu-west-1")
    )

    def guard(stack: Stack, service: ILockService) -> LockGuard:
        scope = Construct(stack, f"Scope{len(stack.node.children)}")
        task = sfn.Pass.jsonata(scope, "Work")
        return LockGuard(scope, "Guard", service=service, task=task, lock_name="x")

    names = ("acquire", "heartbeat", "release")
    arns = {f"{name}_function_arn": f"{FUNCTION}:{name}" for name in names}
    for service in (FunctionsByArn(here, "ByArn", **arns), LockService(here, "Locks")):
        guard(here, service)
        with pytest.raises(InvalidRequest, match=r"^service: must be in the workflow's region eu-"):
            guard(there, service)
