"""A stack that needs what a service does not share is refused, before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Template
from botocore.exceptions import ClientError

from fairlock.cdk import LockService, SharedLockService
from tests.e2e.deployment import Deployment


def invokes(locks: SharedLockService) -> None:
    locks.grant_acquire(iam.Role(Stack.of(locks), "Role", assumed_by=iam.AccountRootPrincipal()))


def inspects(locks: SharedLockService) -> None:
    locks.grant_inspect(iam.Role(Stack.of(locks), "Role", assumed_by=iam.AccountRootPrincipal()))


def uses_durable(locks: SharedLockService) -> None:
    function = lambda_.Function(
        Stack.of(locks),
        "Durable",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )
    locks.grant_durable(function)


@pytest.mark.parametrize(
    ("stack_name", "use", "missing"),
    [
        ("Nowhere", invokes, "/fairlock/Nowhere/AcquireFunctionArn"),
        ("Fairlock", uses_durable, "/fairlock/Fairlock/ServesEveryDurableFunction"),
        ("Fairlock", inspects, "/fairlock/Fairlock/InspectFunctionArn"),
    ],
    ids=["no such service", "not durable", "no administration"],
)
def test_cloudformation_refuses_a_stack_by_the_parameter_that_is_missing(
    deployment: Deployment,
    tmp_path: Path,
    stack_name: str,
    use: Callable[[SharedLockService], None],
    missing: str,
) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Refused")
    use(LockService.from_stack(stack, "Locks", stack_name=stack_name))
    template = dict(Template.from_stack(stack).to_json())
    template["Resources"] = {
        **template.get("Resources", {}),
        "Any": {"Type": "AWS::SQS::Queue"},
    }
    cloudformation = deployment.aws.client("cloudformation")
    with pytest.raises(ClientError) as refused:
        cloudformation.create_stack(
            StackName="Refused",
            TemplateBody=json.dumps(template),
            Capabilities=["CAPABILITY_IAM"],
        )
    assert missing in str(refused.value)
