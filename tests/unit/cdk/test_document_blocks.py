"""The examples of the documents that make constructs: they are made, and CDK synthesizes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import aws_cdk
import pytest
from aws_cdk import App, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template
from aws_cdk.aws_logs import RetentionDays

import fairlock.cdk
from fairlock.cdk import LockService
from fairlock.errors import InvalidRequest
from tests.support.checkout import Block, blocks, python_world

BLOCKS = [block for block in blocks("python") if python_world(block) == "cdk"]
ARN = "arn:aws:{}:us-east-1:123456789012:{}"
FUNCTION = repr(ARN.format("lambda", "function:any"))
LEFT_OUT = {
    r"(?<=function_arn=)…": FUNCTION,
    r"(?<=queue_arn=)…": repr(ARN.format("sqs", "dead-letters")),
    r"(?<=table_name=)…": "'locks'",
    r"(?<=encryption_key=)…": "None",
}
"""What the examples leave to the reader, and something that fits."""


def function(stack: Stack, construct_id: str) -> lambda_.IFunction:
    return lambda_.Function.from_function_arn(
        stack, construct_id, ARN.format("lambda", "function:any")
    )


def machine(stack: Stack, construct_id: str) -> sfn.IStateMachine:
    arn = ARN.format("states", f"stateMachine:{construct_id}")
    return sfn.StateMachine.from_state_machine_arn(stack, construct_id, arn)


def names_for(stack: Stack, code: str) -> dict[str, Any]:
    """What the examples import, and what they say is the reader's."""
    made: dict[str, Any] = {
        "self": stack,
        "Duration": Duration,
        "RemovalPolicy": RemovalPolicy,
        "RetentionDays": RetentionDays,
        "sfn": sfn,
        "tasks": tasks,
        "lambda_": lambda_,
        "dynamodb": dynamodb,
        "charge": sfn.Pass(stack, "Charged"),
        "report": sfn.Pass(stack, "Report"),
        "deploy": sfn.Pass(stack, "Deployed"),
        "function": function(stack, "Function"),
        "compute": function(stack, "Computing"),
        "billing": machine(stack, "BillingMachine"),
        "shipping": machine(stack, "ShippingMachine"),
        "topic": sns.Topic(stack, "Topic"),
        "accounts": dynamodb.Table.from_table_name(stack, "Accounts", "accounts"),
        "code": lambda_.Code.from_inline("def handler(event, context): pass"),
    }
    made |= {name: getattr(fairlock.cdk, name) for name in fairlock.cdk.__all__}
    if "locks" in code and "locks =" not in code:
        made["locks"] = LockService.from_stack(stack, "TheReadersLocks", stack_name="Fairlock")
    if "=service" in code and "service =" not in code:
        made["service"] = LockService.from_stack(stack, "TheReaders", stack_name="Fairlock")
    return made


def run(code: str, stack: Stack) -> dict[str, Any]:
    """Makes what an example makes, and puts what belongs into a state machine into one."""
    for left_out, something in LEFT_OUT.items():
        code = re.sub(left_out, something, code)
    names = names_for(stack, code)
    app = stack.node.root
    assert isinstance(app, App)
    outdir = f"{app.outdir}-of-the-example"
    with mock.patch.object(aws_cdk, "App", return_value=App(outdir=outdir)):
        exec(compile(code, "example", "exec"), names)  # noqa: S102 - the repository's own example
    if "Billing" in names and isinstance(names["Billing"], type):
        names["stack"] = names["Billing"](app, "Billing", function=names["function"])
    steps = [each for each in stack.node.children if isinstance(each, sfn.StateMachineFragment)]
    for number, step in enumerate(steps):
        body = sfn.DefinitionBody.from_chainable(step)
        sfn.StateMachine(stack, f"Machine{number}", definition_body=body)
    return names


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_that_makes_constructs_is_synthesized(block: Block, tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Example")
    code = block.code
    if "fencing_token_of(self" in code:
        # The example shows a task that is made before its guard.
        guards = (each.code for each in BLOCKS if "task=charge" in each.code)
        code += next(guard for guard in guards if '"OneChargePerCustomer"' in guard)
    names = run(code, stack)
    template = Template.from_stack(names.get("stack", stack))
    if block.document == "README.md":
        defaults = [each.get("Default") for each in template.find_parameters("*").values()]
        assert "/fairlock/Fairlock/AcquireFunctionArn" in defaults
        template.resource_count_is("AWS::StepFunctions::StateMachine", 1)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "LockGuard(self, 'G', service=locks, task=charge, lock_name='x', leese=1)",
            InvalidRequest,
        ),
        (
            "LockGuard(self, 'G', service=locks, task=charge, lock_name='x', lease=60)",
            InvalidRequest,
        ),
        ("LockGuards(self, 'G')", NameError),
        ("sfn.Succeed.jsonata(self, 'S', outputz=1)", TypeError),
    ],
)
def test_an_example_with_a_wrong_name_or_argument_is_found(
    code: str, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        run(code, Stack(App(outdir=str(tmp_path)), "Example"))


def test_the_policy_of_the_runbook_is_what_grant_administration_allows(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Example")
    role = iam.Role(stack, "OnCall", assumed_by=iam.AccountRootPrincipal())
    LockService.from_stack(stack, "Locks", stack_name="Fairlock").grant_administration(role)
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    granted = [policy["Properties"]["PolicyDocument"] for policy in policies]
    [told] = [block.code for block in blocks("json") if block.document == "docs/runbook.md"]
    assert actions_in([json.loads(told)]) == actions_in(granted)


def actions_in(policies: Iterable[Any]) -> set[str]:
    statements = [each for policy in policies for each in policy["Statement"]]
    actions = [each["Action"] for each in statements]
    return {one for some in actions for one in ([some] if isinstance(some, str) else some)}
