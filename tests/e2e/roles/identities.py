"""The roles that the service makes or grants to, and clients that send as one of them."""

from __future__ import annotations

from typing import Any, Final

import boto3
from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from botocore.config import Config

from fairlock.cdk import LockGuard
from infra.lock_stack import LockStack
from tests.e2e.deployment import Deployment
from tests.e2e.roles.rights import ACCOUNT, FUNCTIONS
from tests.e2e.workflow_parts import durable_code, durable_function

ROLES = (*FUNCTIONS, "Guard", "Client", "User")
"""The functions' eight; a state machine with a guard; `grant_client`; `grant_use`.

Beside them "TeamA" may use the locks of one prefix, and "Administrator" may do everything.
"""
TRUST: Final = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",'
    f' "Principal": {{"AWS": "arn:aws:iam::{ACCOUNT}:root"}}}}]}}'
)


def client_as(deployment: Deployment, role: str, service: str) -> Any:  # noqa: ANN401 - a boto3 client
    """A boto3 client that sends as a role, which trusts the account: what it may do is at issue."""
    aws, arn = deployment.aws, deployment.outputs["Fairlock"][f"{role}RoleArn"]
    name = arn.rpartition("/")[2]
    aws.client("iam").update_assume_role_policy(RoleName=name, PolicyDocument=TRUST)
    given = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="any")["Credentials"]
    return boto3.client(  # type: ignore[call-overload]  # boto3-stubs want a literal service name
        service,
        region_name="us-east-1",
        endpoint_url=aws.endpoint_url,
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
        config=Config(retries={"max_attempts": 0}, inject_host_prefix=False, proxies={}),
    )


def add_roles(stack: LockStack) -> None:
    """Adds a guarded state machine and roles with grants, and an output for each role."""
    locks, reaper = stack.locks, stack.locks.reaper
    administration = locks.administration
    assert reaper is not None
    assert administration is not None
    assert locks.publish_function is not None
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
        for name in ("Client", "User", "Administrator", "TeamA")
    )
    locks.grant_client(client)
    locks.grant_use(user)
    locks.grant_client(team, prefix="team-a/")
    administrator.add_to_policy(iam.PolicyStatement(actions=["*"], resources=["*"]))
    functions = {
        "Acquire": locks.acquire_function,
        "Heartbeat": locks.heartbeat_function,
        "Release": locks.release_function,
        "Reap": reaper.function,
        "Inspect": administration.inspect,
        "ForceRelease": administration.force_release,
        "SetLimit": administration.set_limit,
        "Publish": locks.publish_function,
    }
    for name, function in functions.items():
        CfnOutput(stack, f"{name}LogGroupArn", value=function.log_group.log_group_arn)
    roles: dict[str, iam.IRole | None] = {
        "Guard": machine.role,
        "Client": client,
        "User": user,
        "Administrator": administrator,
        "TeamA": team,
        **{name: function.role for name, function in functions.items()},
    }
    for name, role in roles.items():
        assert role is not None
        CfnOutput(stack, f"{name}RoleArn", value=role.role_arn)
    CfnOutput(stack, "MachineArn", value=machine.state_machine_arn)
    assert locks.table.table_stream_arn is not None
    CfnOutput(stack, "StreamArn", value=locks.table.table_stream_arn)


# Durable functions whose state a customer's key encrypts, beside the service in its stack.

KEYED: Final = {"Keyed": True, "KeyUnknown": False}
"""The functions; to the second one's key the service is granted nothing."""


def add_keyed_functions(stack: LockStack) -> None:
    """Adds them, with an output for the name of each."""
    with durable_code() as code:
        for name, granted in KEYED.items():
            key = kms.Key(stack, f"{name}Key")
            function = durable_function(
                stack,
                name,
                locks=stack.locks,
                code=code,
                seconds=600,
                key=key if granted else None,
            )
            resource = function.node.default_child
            assert isinstance(resource, lambda_.CfnFunction)
            resource.add_property_override("DurableConfig.KMSKeyArn", key.key_arn)
