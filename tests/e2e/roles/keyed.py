"""Durable functions whose state a customer's key encrypts, beside the service in its stack."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_

from infra.durable_package import package
from infra.lock_stack import LockStack
from tests.e2e.durable.stack import WORKER

EXECUTION_SECONDS: Final = 600
KEYED: Final = {"Keyed": True, "KeyUnknown": False}
"""The functions; to the second one's key the service is granted nothing."""


def add_keyed_functions(stack: LockStack) -> None:
    """Adds them, with an output for the name of each."""
    with tempfile.TemporaryDirectory() as directory:
        # CDK copies it into the cloud assembly at once.
        code = lambda_.Code.from_asset(str(package(WORKER, Path(directory, "function"))))
        for name, granted in KEYED.items():
            _add_function(stack, name, code, granted=granted)


def _add_function(stack: LockStack, name: str, code: lambda_.Code, *, granted: bool) -> None:
    key = kms.Key(stack, f"{name}Key")
    timeout = Duration.seconds(EXECUTION_SECONDS)
    function = lambda_.Function(
        stack,
        name,
        code=code,
        handler="inside.durable",
        runtime=lambda_.Runtime.PYTHON_3_13,
        timeout=Duration.seconds(60),
        durable_config=lambda_.DurableConfig(execution_timeout=timeout),
    )
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    resource.add_property_override("DurableConfig.KMSKeyArn", key.key_arn)
    stack.locks.grant_durable(function, key=key if granted else None)
    CfnOutput(stack, f"{name}FunctionName", value=function.function_name)
