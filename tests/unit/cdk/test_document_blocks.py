"""The examples of the documents that make constructs: they are made, and CDK synthesizes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import aws_cdk
import pytest
from aws_cdk import App, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template
from aws_cdk.aws_logs import RetentionDays

import fairlock.cdk
from fairlock.cdk import LockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.errors import InvalidRequest
from tests.support.checkout import Block, blocks, python_world
from tests.unit.cdk.guard_forms import machine, role
from tests.unit.cdk.template import actions, listed, template_of

BLOCKS = [block for block in blocks("python") if python_world(block) == "cdk"]
ARN = "arn:aws:{}:us-east-1:123456789012:{}"
LEFT_OUT = {
    r"(?<=function_arn=)…": repr(ARN.format("lambda", "function:any")),
    r"(?<=queue_arn=)…": repr(ARN.format("sqs", "dead-letters")),
    r"(?<=table_name=)…": "'locks'",
    r"(?<=encryption_key=)…": "None",
}
"""What the examples leave to the reader, and something that fits."""


def names_for(stack: Stack, code: str) -> dict[str, Any]:
    """What an example imports, and what it says is the reader's."""
    function = partial(lambda_.Function.from_function_arn, stack)
    machine = partial(sfn.StateMachine.from_state_machine_arn, stack)
    of_the_reader: dict[str, Callable[[], Any]] = {
        "charge": partial(sfn.Pass, stack, "Charged"),
        "report": partial(sfn.Pass, stack, "Report"),
        "deploy": partial(sfn.Pass, stack, "Deployed"),
        "function": partial(function, "Function", ARN.format("lambda", "function:any")),
        "compute": partial(function, "Computing", ARN.format("lambda", "function:any")),
        "billing": partial(machine, "Billing machine", ARN.format("states", "stateMachine:b")),
        "shipping": partial(machine, "Shipping machine", ARN.format("states", "stateMachine:s")),
        "topic": partial(sns.Topic, stack, "Topic"),
        "accounts": partial(dynamodb.Table.from_table_name, stack, "Accounts", "accounts"),
        "code": partial(lambda_.Code.from_inline, "def handler(event, context): pass"),
    }
    for name in ("locks", "service"):
        if f"{name} =" not in code:
            shared = partial(LockService.from_stack, stack, f"TheReaders {name}")
            of_the_reader[name] = partial(shared, stack_name="Fairlock")
    return {
        "self": stack,
        "Duration": Duration,
        "RemovalPolicy": RemovalPolicy,
        "RetentionDays": RetentionDays,
        "sfn": sfn,
        "tasks": tasks,
        "lambda_": lambda_,
        "dynamodb": dynamodb,
        **{name: getattr(fairlock.cdk, name) for name in fairlock.cdk.__all__},
        **{name: make() for name, make in of_the_reader.items() if name in code},
    }


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
    if isinstance(names.get("Billing"), type):
        names["stack"] = names["Billing"](app, "Billing", function=names["function"])
    steps = [each for each in stack.node.children if isinstance(each, sfn.StateMachineFragment)]
    for number, step in enumerate(steps):
        machine(stack, step, f"Machine{number}")
    return names


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_that_makes_constructs_is_synthesized(block: Block, own: Stack) -> None:
    code = block.code
    if "fencing_token_of(self" in code:
        # The example shows a task that is made before its guard.
        guards = (each.code for each in BLOCKS if "task=charge" in each.code)
        code += next(guard for guard in guards if '"OneChargePerCustomer"' in guard)
    template = Template.from_stack(run(code, own).get("stack", own))
    if block.document == "README.md":
        defaults = [each.get("Default") for each in template.find_parameters("*").values()]
        assert "/fairlock/Fairlock/AcquireFunctionArn" in defaults
        template.resource_count_is("AWS::StepFunctions::StateMachine", 1)


def test_an_example_with_a_wrong_name_or_argument_is_found(own: Stack) -> None:
    with pytest.raises(NameError):
        run("LockGuards(self, 'G')", own)
    with pytest.raises(InvalidRequest):
        run("LockGuard(self, 'G', service=locks, task=charge, lock_name='x', leese=1)", own)


def test_the_runbooks_policy_is_that_of_the_grant(own: Stack, imported: SharedLockService) -> None:
    imported.grant_administration(role(own))
    [told] = [block.code for block in blocks("json") if block.document == "docs/runbook.md"]
    in_the_runbook = [each["Action"] for each in json.loads(told)["Statement"]]
    assert {action for each in in_the_runbook for action in listed(each)} == {
        *actions(template_of(own))
    }
