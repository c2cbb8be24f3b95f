"""The stack of the guard's sample in README.md, with an output for the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService
from tests.e2e.guard.stack import function

_README: Final = Path(__file__).resolve().parents[3] / "README.md"
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sample(word: str) -> str:
    """The one Python block of the README that contains a word."""
    [code] = [code for code in _PYTHON.findall(_README.read_text()) if word in code]
    return str(code)


def run_sample(code: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever the sample uses
    """Runs a block among these names, and returns all names afterwards."""
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 - the repository's own example
    return names


def guard_sample(scope: Construct, construct_id: str, *, locks: ILockService) -> Stack:
    """The sample's stack, deployed after the service that it finds by its stack's name."""
    worker = function(Stack(scope, f"{construct_id}Worker"), "Worker", handler="worker.handler")
    stack = run_sample(sample("class Billing("))["Billing"](scope, construct_id, function=worker)
    assert isinstance(stack, Stack)
    assert isinstance(locks, Construct)
    stack.add_stack_dependency(Stack.of(locks))
    machine = stack.node.find_child("Machine")
    assert isinstance(machine, sfn.StateMachine)
    CfnOutput(stack, "BillingArn", value=machine.state_machine_arn)
    return stack
