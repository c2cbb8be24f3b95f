"""The functions of the service, each with a log group and a role of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Duration, RemovalPolicy, Stack, Stage, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from fairlock.cdk.service.asset import AssetError, assemble
from fairlock.cdk.service.byte_code import add_byte_code
from fairlock.cdk.service.platform import Platform
from fairlock.metrics import NAMESPACE, SERVICE_NAME_VARIABLE, TABLE_NAME_VARIABLE

RUNTIME: Final = lambda_.Runtime.PYTHON_3_13
FUNCTION_TIMEOUT_SECONDS: Final = 20
"""More than a request to DynamoDB may take with its repeats, so that an outage of DynamoDB ends in
the service's own error and not in Lambda's."""


_KEY_NEEDED: Final = "DynamoDB asks for them on a customer's key; on this key alone."
_TOKEN_NEEDED: Final = "Any workflow of this account and region may wait; its task token is needed."
_WORKFLOW_ACTIONS: Final = {
    "DescribeExecution": (
        "execution",
        "Any workflow of this account and region may hold a lock; read-only.",
    ),
    "SendTaskSuccess": ("stateMachine", _TOKEN_NEEDED),
    "SendTaskFailure": ("stateMachine", _TOKEN_NEEDED),
}
"""Actions of Step Functions, each with its resource and the reason why it is allowed on all. The
Service Authorization Reference lists no resource for SendTask*. But denials by AWS name the state
machine, and `StateMachine.grant_task_response` of CDK grants on it."""


def handler_code(scope: Construct) -> lambda_.Code:
    """The code of all handlers, assembled beside the other assets of the cloud assembly."""
    stage = Stage.of(scope)
    if stage is None:
        raise AssetError(f"{scope.node.path} belongs to no App or Stage")
    # No byte code in the asset's hash: see `_add_byte_code`.
    return lambda_.Code.from_asset(str(assemble(Path(stage.asset_outdir))), exclude=["*.pyc"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFactory:
    """Makes the functions of one service, with the same runtime, table, logs and settings."""

    scope: Construct
    code: lambda_.Code
    table: dynamodb.ITable
    service_name: str
    log_retention: logs.RetentionDays
    log_removal_policy: RemovalPolicy
    log_level: str
    memory_size_mib: int
    platform: Platform

    def make(
        self,
        construct_id: str,
        *,
        description: str,
        table_actions: Sequence[str],
        workflow_actions: Sequence[str],
        environment: Mapping[str, str] | None = None,
        recursive_loop: lambda_.RecursiveLoop | None = None,
        handler: str | None = None,
    ) -> lambda_.Function:
        """Makes a function with this handler; by default with that of the same name as its id.

        It may do `table_actions` on the lock table, and `workflow_actions` on every workflow of the
        account and region. A transaction needs no action of its own, only those of its writes.
        """
        log_group = logs.LogGroup(
            self.scope,
            f"{construct_id}Logs",
            retention=self.log_retention,
            removal_policy=self.log_removal_policy,
        )
        function = lambda_.Function(
            self.scope,
            construct_id,
            description=description,
            code=self.code,
            handler=f"lambdas.{handler or construct_id.lower()}.handler",
            runtime=RUNTIME,
            architecture=self.platform.architecture,
            memory_size=self.memory_size_mib,
            timeout=Duration.seconds(FUNCTION_TIMEOUT_SECONDS),
            tracing=self.platform.tracing,
            role=self._role(construct_id, log_group, table_actions),
            log_group=log_group,
            recursive_loop=recursive_loop,
            environment={
                TABLE_NAME_VARIABLE: self.table.table_name,
                SERVICE_NAME_VARIABLE: self.service_name,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": self.log_level,
                **(environment or {}),
            },
        )
        _add_byte_code(function)
        self.platform.set_defaults(function)
        _acknowledge_wildcard(function, "Resource::*", "X-Ray's write actions take no resource.")
        Validations.of(function).acknowledge(
            Acknowledgment(
                id="AwsSolutions-L1", reason=f"The handlers are tested with {RUNTIME.name}."
            )
        )
        if self.table.encryption_key is not None:
            for finding in ("Action::kms:GenerateDataKey*", "Action::kms:ReEncrypt*"):
                _acknowledge_wildcard(function, finding, _KEY_NEEDED)
        for action in workflow_actions:
            grant_workflow_action(self.scope, function, action)
            resource, reason = _WORKFLOW_ACTIONS[action]
            workflows = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
            _acknowledge_wildcard(function, f"Resource::{workflows}:{resource}:*", reason)
        return function

    def _role(
        self, construct_id: str, log_group: logs.ILogGroup, table_actions: Sequence[str]
    ) -> iam.Role:
        role = iam.Role(
            self.scope,
            f"{construct_id}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        if table_actions:
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=[f"dynamodb:{action}" for action in table_actions],
                    resources=[self.table.table_arn],
                )
            )
        key = self.table.encryption_key
        if key is not None:
            key.grant_encrypt_decrypt(role)
            key.grant(role, "kms:DescribeKey")
        log_group.grant_write(role)
        return role


def _add_byte_code(function: lambda_.Function) -> None:
    """Adds byte code to the copy of the handlers that CDK has made for this function.

    CDK names that copy by a hash of what it copied: the sources. So a template is the same on every
    machine, with and without the runtime's Python. CDK uploads each hash once.
    """
    stage = Stage.of(function)
    copy = function.node.try_find_child("Code")  # At the first function that has this code.
    if stage is not None and isinstance(copy, s3_assets.Asset):
        add_byte_code(Path(stage.outdir, copy.asset_path), RUNTIME.name)


def _acknowledge_wildcard(function: lambda_.Function, finding: str, reason: str) -> None:
    """Tells cdk-nag, where a user runs it, why a wildcard stands in the function's policy."""
    if function.role is not None:
        Validations.of(function.role).acknowledge(
            Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason)
        )


def grant_workflow_action(scope: Construct, grantee: iam.IGrantable, action: str) -> iam.Grant:
    """Allows an action of Step Functions on every workflow of the account and region."""
    workflows = Stack.of(scope).format_arn(
        service="states",
        resource=_WORKFLOW_ACTIONS[action][0],
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=[f"states:{action}"], resource_arns=[workflows]
    )
