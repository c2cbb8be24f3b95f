"""Requests as another caller: signed with the credentials of a role."""

from __future__ import annotations

import os
from typing import Any, Final

import boto3
import botocore.session
from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from botocore.config import Config
from botocore.exceptions import ClientError

from fairlock.cdk import LockGuard
from infra.lock_stack import LockStack
from tests.e2e.deployment import Deployment
from tests.e2e.roles.calls import ACCOUNT, AnyCall, Simulated
from tests.e2e.workflow_parts import durable_code, durable_function

ROLES = (
    *("Acquire", "Heartbeat", "Release", "Reap", "Inspect", "ForceRelease", "SetLimit", "Publish"),
    *("Guard", "Client", "User", "Administrator"),
)
"""The functions' eight; a state machine with a guard; `grant_client`; `grant_use`; the control.

Beside them "TeamA" may use the locks of one prefix.
"""
_DENIALS: Final = {"AccessDenied", "AccessDeniedException", "AuthorizationError"}
_NOT_OF_THE_USER: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
TRUST: Final = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",'
    f' "Principal": {{"AWS": "arn:aws:iam::{ACCOUNT}:root"}}}}]}}'
)


class Identities:
    """Sends requests with the credentials of one role after the other."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._credentials = {name: self._assumed(name) for name in (*ROLES, "TeamA")}
        self._session = boto3.session.Session(
            "unknown",
            "unknown",
            "unknown",
            region_name="us-east-1",
            botocore_session=botocore.session.Session(session_vars=_NOT_OF_THE_USER),
        )
        self._clients: dict[str, Any] = {}

    def denied(self, role: str, call: AnyCall) -> bool:
        """Whether the role may not make this request; any other answer means that it may."""
        if isinstance(call, Simulated):
            return self._denied_in_simulation(role, call)
        self._use(role)
        try:
            getattr(self._client(call.service), call.operation)(**call.arguments)
        except ClientError as error:
            answer = error.response["Error"]
            return answer["Code"] in _DENIALS
        return False

    def client(self, role: str, service: str) -> Any:  # noqa: ANN401 - a boto3 client
        """It sends as this role, until another one is used."""
        self._use(role)
        return self._client(service)

    def _denied_in_simulation(self, role: str, call: Simulated) -> bool:
        arn = self._deployment.outputs["Fairlock"][f"{role}RoleArn"]
        answer = self._deployment.aws.client("iam").simulate_principal_policy(
            PolicySourceArn=arn, ActionNames=[call.action], ResourceArns=[call.resource]
        )
        [result] = answer["EvaluationResults"]
        return bool(result["EvalDecision"] != "allowed")

    def _assumed(self, role: str) -> dict[str, str]:
        """Credentials of a role whose trust is given to the account: what it may do is at issue."""
        aws, arn = self._deployment.aws, self._deployment.outputs["Fairlock"][f"{role}RoleArn"]
        name = arn.rpartition("/")[2]
        aws.client("iam").update_assume_role_policy(RoleName=name, PolicyDocument=TRUST)
        answer = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="matrix")
        credentials: dict[str, str] = answer["Credentials"]
        return credentials

    def _use(self, role: str) -> None:
        """Signs from now on as this role: clients ask their session for each signature."""
        signing, given = self._session.get_credentials(), self._credentials[role]
        assert signing is not None
        signing.access_key = given["AccessKeyId"]
        signing.secret_key = given["SecretAccessKey"]
        signing.token = given["SessionToken"]

    def _client(self, service: str) -> Any:  # noqa: ANN401 - a boto3 client
        if service not in self._clients:
            # The overloads of boto3-stubs want a literal service name.
            self._clients[service] = self._session.client(  # type: ignore[call-overload]
                service,
                endpoint_url=self._deployment.aws.endpoint_url,
                config=Config(retries={"max_attempts": 0}, inject_host_prefix=False, proxies={}),
            )
        return self._clients[service]


# The roles that the service makes or grants to, beside it in its stack.


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
