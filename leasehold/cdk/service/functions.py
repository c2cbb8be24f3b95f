"""The functions of the service: each with its own role, log group and nothing it does not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aws_cdk import Acknowledgment, ArnFormat, Duration, RemovalPolicy, Stack, Stage, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from leasehold.cdk.service.asset import AssetError, assemble
from leasehold.metrics import NAMESPACE, SERVICE

FUNCTION_TIMEOUT_SECONDS: Final = 20
"""More than a request to DynamoDB may take with its repeats, so that an outage of DynamoDB ends in
the service's own error and not in Lambda's."""


def handler_code(scope: Construct) -> lambda_.Code:
    """The code of all handlers, assembled beside the other assets of the cloud assembly."""
    stage = Stage.of(scope)
    if stage is None:
        message = f"{scope.node.path} belongs to no App or Stage"
        raise AssetError(message)
    return lambda_.Code.from_asset(str(assemble(Path(stage.asset_outdir))))


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMaker:
    """Makes the functions of one service alike, so that two differ only in what they are for."""

    scope: Construct
    code: lambda_.Code
    table: dynamodb.ITable
    encryption_key: kms.IKey | None
    log_retention: logs.RetentionDays
    log_removal_policy: RemovalPolicy
    log_level: str
    memory_size_mib: int

    def make(
        self,
        construct_id: str,
        *,
        description: str,
        table_actions: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> lambda_.Function:
        """A function that may do these actions on the lock table; its handler is named as its id.

        A transaction needs no action of its own, but those of the writes in it.
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
            handler=f"lambdas.{construct_id.lower()}.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=self.memory_size_mib,
            timeout=Duration.seconds(FUNCTION_TIMEOUT_SECONDS),
            tracing=lambda_.Tracing.ACTIVE,
            role=self._role(construct_id, log_group, table_actions),
            log_group=log_group,
            environment={
                "LEASEHOLD_TABLE_NAME": self.table.table_name,
                "POWERTOOLS_SERVICE_NAME": SERVICE,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": self.log_level,
                **(environment or {}),
            },
        )
        _acknowledge_wildcard(function, "Resource::*", "X-Ray's write actions take no resource.")
        Validations.of(function).acknowledge(
            Acknowledgment(id="AwsSolutions-L1", reason="The handlers are tested with python3.13.")
        )
        return function

    def let_describe_executions(self, function: lambda_.Function) -> None:
        """Lets a function ask whether a workflow of this account and region still runs."""
        self._let_use_workflows(
            function,
            action="DescribeExecution",
            resource="execution",
            reason="Any workflow of this account and region may hold a lock; read-only.",
        )

    def let_complete_tasks(self, function: lambda_.Function) -> None:
        """Lets a function tell a waiting workflow of this account and region that it was granted.

        Which one is decided by the task token, which only the waiting workflow can have given.
        """
        # The Service Authorization Reference lists no resource for SendTask*. But denials by AWS
        # name the state machine, and `StateMachine.grant_task_response` of CDK grants on it.
        self._let_use_workflows(
            function,
            action="SendTaskSuccess",
            resource="stateMachine",
            reason="Any workflow of this account and region may wait; its task token is needed.",
        )

    def let_fail_tasks(self, function: lambda_.Function) -> None:
        """Lets a function tell a workflow that keeps its lock alive that it has lost it."""
        self._let_use_workflows(
            function,
            action="SendTaskFailure",
            resource="stateMachine",
            reason="Any workflow of this account and region may wait; its task token is needed.",
        )

    def _let_use_workflows(
        self, function: lambda_.Function, *, action: str, resource: str, reason: str
    ) -> None:
        workflows = Stack.of(self.scope).format_arn(
            service="states",
            resource=resource,
            resource_name="*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        function.add_to_role_policy(
            iam.PolicyStatement(actions=[f"states:{action}"], resources=[workflows])
        )
        prefix = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
        _acknowledge_wildcard(function, f"Resource::{prefix}:{resource}:*", reason)

    def _role(
        self, construct_id: str, log_group: logs.ILogGroup, table_actions: Sequence[str]
    ) -> iam.Role:
        role = iam.Role(
            self.scope,
            f"{construct_id}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=[f"dynamodb:{action}" for action in table_actions],
                resources=[self.table.table_arn],
            )
        )
        if self.encryption_key is not None:
            self.encryption_key.grant_encrypt_decrypt(role)
            self.encryption_key.grant(role, "kms:DescribeKey")
        log_group.grant_write(role)
        return role


def _acknowledge_wildcard(function: lambda_.Function, finding: str, reason: str) -> None:
    """Tells cdk-nag, where a user runs it, why a wildcard stands in the function's policy."""
    if function.role is not None:
        Validations.of(function.role).acknowledge(
            Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason)
        )
