"""The roles that the lock service makes or grants to, with functions that have a key, in its stack.

And clients with the credentials of one role.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

import boto3
from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard
from infra.durable_package import package
from infra.lock_stack import LockStack
from testbed.localaws.environment import ACCOUNT
from tests.e2e.deployment import Deployment
from tests.e2e.durable.executions import WORKER
from tests.e2e.workflow_parts import durable_function

FUNCTIONS: Final = (
    *("Acquire", "Heartbeat", "Release", "Reap", "Inspect", "ForceRelease", "SetLimit", "Publish"),
)
ROLES: Final = (*FUNCTIONS, "Guard", "Client", "User")
"""The functions' eight; a state machine with a guard; `grant_client`; `grant_use`."""
ADMINISTRATOR: Final = "Administrator"
"""The control: it may do everything."""
EXECUTION_SECONDS: Final = 600


def add_roles(stack: LockStack) -> None:
    """Adds a guarded state machine and roles with grants, and an output for each role."""
    locks, reaper, administration = stack.locks, stack.locks.reaper, stack.locks.administration
    assert reaper is not None
    assert administration is not None
    assert locks.publish_function is not None
    assert locks.table.table_stream_arn is not None
    guard = LockGuard(
        stack,
        "Guarded",
        service=locks,
        task=sfn.Pass.jsonata(stack, "Work"),
        lock_name="guarded",
        keep_alive=Duration.seconds(15),
    )
    definition = sfn.DefinitionBody.from_chainable(guard)
    machine = sfn.StateMachine(stack, "Machine", definition_body=definition)
    client, user, administrator, team = (
        iam.Role(stack, name, assumed_by=iam.AccountRootPrincipal())
        for name in ("Client", "User", ADMINISTRATOR, "TeamA")
    )
    locks.grant_client(client)
    locks.grant_use(user)
    locks.grant_client(team, prefix="team-a/")
    administrator.add_to_policy(iam.PolicyStatement(actions=["*"], resources=["*"]))
    functions = (
        *(locks.acquire_function, locks.heartbeat_function, locks.release_function),
        *(reaper.function, administration.inspect, administration.force_release),
        *(administration.set_limit, locks.publish_function),
    )
    roles = (*(each.role for each in functions), machine.role, client, user, administrator, team)
    for name, role in zip((*ROLES, ADMINISTRATOR, "TeamA"), roles, strict=True):
        assert role is not None
        CfnOutput(stack, f"{name}RoleArn", value=role.role_arn)
    CfnOutput(stack, "MachineArn", value=machine.state_machine_arn)
    CfnOutput(stack, "StreamArn", value=locks.table.table_stream_arn)


def add_keyed_functions(stack: LockStack) -> None:
    """Adds durable functions whose state a customer's key encrypts.

    The service is granted the key of the one, and not that of the other.
    """
    with tempfile.TemporaryDirectory() as directory:
        # CDK copies it into the cloud assembly at once.
        code = lambda_.Code.from_asset(str(package(WORKER, Path(directory, "function"))))
        for name, is_granted in (("Keyed", True), ("KeyUnknown", False)):
            key = kms.Key(stack, f"{name}Key")
            function = durable_function(stack, name, code=code, seconds=EXECUTION_SECONDS)
            resource = function.node.default_child
            assert isinstance(resource, lambda_.CfnFunction)
            resource.add_property_override("DurableConfig.KMSKeyArn", key.key_arn)
            stack.locks.grant_durable(function, key=key if is_granted else None)
            CfnOutput(stack, f"{name}FunctionName", value=function.function_name)


def role_arn(deployment: Deployment, role: str) -> str:
    return deployment.outputs["Fairlock"][f"{role}RoleArn"]


def client_as(deployment: Deployment, role: str, service: str) -> Any:  # noqa: ANN401 - a boto3 client
    """A client with the credentials of a role, whose trust is given to the account before."""
    aws, arn = deployment.aws, role_arn(deployment, role)
    account = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": account}
    aws.client("iam").update_assume_role_policy(
        RoleName=arn.rpartition("/")[2], PolicyDocument=json.dumps({"Statement": [trust]})
    )
    given = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    return boto3.client(  # type: ignore[call-overload]  # any service
        service,
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
        region_name="us-east-1",
        endpoint_url=aws.endpoint_url,
    )
