"""The functions of the service, each with a log group and a role of its own.

Lambda has no X-Ray in China, and not everywhere arm64 or a setting for recursive loops. A stack may
name no region, so CloudFormation decides by the partition, when the stack is deployed. People see,
pause and free locks by three functions, because IAM grants whole functions. None shows an owner_id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from aws_cdk import (
    Acknowledgment,
    ArnFormat,
    Aws,
    CfnCondition,
    Duration,
    Fn,
    RemovalPolicy,
    Stack,
    Stage,
    Validations,
)
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from fairlock.cdk.service.asset import AssetError, add_byte_code, assemble
from fairlock.errors import InvalidRequest
from fairlock.names import NAMESPACE, SERVICE_NAME_VARIABLE, TABLE_NAME_VARIABLE
from fairlock.protocol import schema


class Platform:
    """Tracing, architecture and loops of functions, as they were asked for or by default."""

    def __init__(
        self,
        scope: Construct,
        *,
        tracing: bool | None,
        architecture: lambda_.Architecture | None,
        recursive_loop: bool | None,
    ) -> None:
        """Takes None for a default, and then adds a condition to the stack."""
        self.tracing = lambda_.Tracing.DISABLED if tracing is False else lambda_.Tracing.ACTIVE
        self.architecture = architecture or lambda_.Architecture.ARM_64
        self._defaults: dict[str, tuple[str, str]] = {}
        if tracing is None:
            self._defaults["TracingConfig.Mode"] = ("Active", "PassThrough")
        if architecture is None:
            names = (lambda_.Architecture.ARM_64.name, lambda_.Architecture.X86_64.name)
            self._defaults["Architectures.0"] = names
        self._recursive_loop = recursive_loop
        if self._defaults or recursive_loop is None:
            usual = Fn.condition_equals(Aws.PARTITION, "aws")
            self._usual = CfnCondition(scope, "PartitionAws", expression=usual).logical_id

    def set_defaults(self, function: lambda_.Function) -> None:
        """Lets the partition decide about what no one asked for."""
        resource = cast("lambda_.CfnFunction", function.node.default_child)
        for property_path, (usual, elsewhere) in self._defaults.items():
            value = Fn.condition_if(self._usual, usual, elsewhere)
            resource.add_property_override(property_path, value)

    def allow_recursion(self, function: lambda_.Function) -> None:
        """Lets a function send messages to itself, where Lambda has such a setting.

        GovCloud, mx-central-1 and ap-southeast-6 have none (its developer guide, "Recursive loop
        detection").
        """
        if self._recursive_loop is False:
            return
        value: object = "Allow"
        if self._recursive_loop is None:
            value = Fn.condition_if(self._usual, value, Aws.NO_VALUE)
        resource = cast("lambda_.CfnFunction", function.node.default_child)
        resource.add_property_override("RecursiveLoop", value)


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

HANDS_OVER: Final = ("UpdateItem", "DeleteItem", "Query", "GetItem")
"""What a function sends to the table that may hand a lock over; one that joins puts items too."""
WAKES: Final = ("DescribeExecution", "SendTaskSuccess")


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
        workflow_actions: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        handler: str | None = None,
        timeout_seconds: int = FUNCTION_TIMEOUT_SECONDS,
    ) -> lambda_.Function:
        """Makes a function that may do these actions; its handler is by default that of its id."""
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
            timeout=Duration.seconds(timeout_seconds),
            tracing=self.platform.tracing,
            role=self._role(construct_id, log_group, table_actions),
            log_group=log_group,
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
            actions = [f"dynamodb:{action}" for action in table_actions]
            table = [self.table.table_arn]
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=table))
        if self.table.encryption_key is not None:
            grant_key(self.table.encryption_key, role)
        log_group.grant_write(role)
        return role


def _add_byte_code(function: lambda_.Function) -> None:
    """Adds byte code to the copy of the handlers that CDK has made for this function.

    CDK names that copy by a hash of the sources. So a template is the same on every machine.
    """
    stage = Stage.of(function)
    copy = function.node.try_find_child("Code")  # At the first function that has this code.
    if stage is not None and isinstance(copy, s3_assets.Asset):
        add_byte_code(Path(stage.outdir, copy.asset_path), RUNTIME.name)


def _acknowledge_wildcard(function: lambda_.Function, finding: str, reason: str) -> None:
    """Tells cdk-nag, where a user runs it, why a wildcard is in the function's policy."""
    if function.role is not None:
        Validations.of(function.role).acknowledge(
            Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason)
        )


def grant_key(key: kms.IKey, grantee: iam.IGrantable) -> None:
    """Allows what DynamoDB asks of every principal that uses a table with a customer's key."""
    key.grant_encrypt_decrypt(grantee)
    key.grant(grantee, "kms:DescribeKey")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AdministrationFunctions:
    """What a service with `administration=True` has besides; two of them log who did it and why."""

    inspect: lambda_.Function
    force_release: lambda_.Function
    set_limit: lambda_.Function


def make_administration(functions: FunctionFactory) -> AdministrationFunctions:
    """Makes the three functions."""

    def make_writer(name: str, handler: str, description: str) -> lambda_.Function:
        return functions.make(
            name,
            description=description,
            handler=handler,
            table_actions=HANDS_OVER,  # Raising a limit hands over to those who wait.
            workflow_actions=WAKES,
        )

    return AdministrationFunctions(
        inspect=functions.make(
            "Inspect",
            description="Fairlock: describes and lists locks",
            table_actions=["GetItem", "Query", "Scan"],
        ),
        force_release=make_writer(
            "ForceRelease", "force_release", "Fairlock: releases holders by force"
        ),
        set_limit=make_writer(
            "SetLimit", "set_limit", "Fairlock: limits, pauses and resumes locks"
        ),
    )


def make_pace(functions: FunctionFactory) -> lambda_.Function:
    """Makes the function that reserves slots; it may read and update items, and nothing else."""
    return functions.make(
        "Pace",
        description="Fairlock: reserves slots of a pace",
        table_actions=["UpdateItem", "GetItem"],
    )


_BATCH_SIZE: Final = 100
_BATCHING_SECONDS: Final = 1
_LOCKS: Final = {"dynamodb": {"Keys": {schema.SORT_KEY: {"S": [schema.STATE]}}}}
_FENCED_CLAIMS: Final = {
    "dynamodb": {
        "Keys": {schema.PARTITION_KEY: {"S": [{"prefix": schema.partition_of_execution("")}]}},
        "NewImage": {schema.FENCED: {"N": [{"exists": True}]}},
    }
}
_VERSIONS_THAT_LEFT: Final = {
    "eventName": ["REMOVE"],
    "dynamodb": {
        "Keys": {schema.SORT_KEY: {"S": [{"prefix": schema.WAITER_PREFIX}]}},
        "OldImage": {schema.ONLY_NEWEST: {"N": [{"exists": True}]}},
    },
}


def make_publisher(functions: FunctionFactory) -> lambda_.Function:
    """Makes the function, which reads the stream and single locks, and may only put events."""
    if functions.table.table_stream_arn is None:
        rule = "must be False for a table without a stream of new and old images"
        raise InvalidRequest(field="lifecycle_events", rule=rule, value=True)
    function = functions.make(
        "Publish",
        description="Fairlock: tells EventBridge what happens to locks",
        table_actions=["GetItem"],
    )
    bus = Stack.of(functions.scope).format_arn(
        service="events", resource="event-bus", resource_name="default"
    )
    function.add_to_role_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]))
    function.add_event_source(
        sources.DynamoEventSource(
            functions.table,
            starting_position=lambda_.StartingPosition.LATEST,
            batch_size=_BATCH_SIZE,
            # A record that fails holds up as few others as possible.
            bisect_batch_on_error=True,
            max_batching_window=Duration.seconds(_BATCHING_SECONDS),
            filters=[
                lambda_.FilterCriteria.filter(pattern)
                for pattern in (_LOCKS, _FENCED_CLAIMS, _VERSIONS_THAT_LEFT)
            ],
        )
    )
    return function
