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
from constructs import Construct, IConstruct

from fairlock.cdk.fragments import is_whole, require
from fairlock.cdk.service.asset import AssetError, add_byte_code, assemble
from fairlock.errors import InvalidRequest
from fairlock.names import NAMESPACE, SERVICE_NAME_VARIABLE, TABLE_NAME_VARIABLE
from fairlock.protocol import schema

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

_HANDS_OVER: Final = ("UpdateItem", "DeleteItem", "Query", "GetItem")
"""What a function sends to the table that may hand a lock over; one that joins puts items too."""
_WAKES: Final = ("DescribeExecution", "SendTaskSuccess")
OPERATIONS: Final[Mapping[str, tuple[str, Sequence[str], Sequence[str]]]] = {
    "acquire": ("acquires locks", ("PutItem", *_HANDS_OVER), _WAKES),
    # It may have to clear a queue in which no one waits before it takes a lock again.
    "heartbeat": ("renews leases", ("PutItem", *_HANDS_OVER), (*_WAKES, "SendTaskFailure")),
    "release": ("releases locks", _HANDS_OVER, _WAKES),
    "inspect": ("describes and lists locks", ("GetItem", "Query", "Scan"), ()),
    "force_release": ("releases holders by force", _HANDS_OVER, _WAKES),
    # Raising a limit hands over to those who wait.
    "set_limit": ("limits, pauses and resumes locks", _HANDS_OVER, _WAKES),
    "pace": ("reserves slots of a pace", ("UpdateItem", "GetItem"), ()),
    "publish": ("tells EventBridge what happens to locks", ("GetItem",), ()),
    "reap": (
        "frees the locks of workflows that ended without doing so",
        (*_HANDS_OVER, "ConditionCheckItem"),
        _WAKES,
    ),
    "watch": ("measures how long owners wait for locks", ("GetItem", "Query"), ()),
}
"""The functions, by their modules: what each does, its actions on the table and on workflows."""


def function_id(operation: str) -> str:
    """The name of a function in templates, such as "ForceRelease"."""
    return operation.title().replace("_", "")


LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LEAST_MEMORY_MIB: Final = 128
MOST_MEMORY_MIB: Final = 10_240


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """How the functions run, as `LockService` explains it; None leaves it to the partition."""

    log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH
    log_removal_policy: RemovalPolicy = RemovalPolicy.DESTROY
    log_level: str = "INFO"
    memory_size_mib: int = 256
    tracing: bool | None = None
    architecture: lambda_.Architecture | None = None
    recursive_loop: bool | None = None

    def __post_init__(self) -> None:
        """Checks the settings."""
        rule = f"must be one of {', '.join(LOG_LEVELS)}"
        require("log_level", self.log_level in LOG_LEVELS, rule, self.log_level)
        is_known = isinstance(self.log_retention, logs.RetentionDays)
        rule = "must be a member of aws_logs.RetentionDays"
        require("log_retention", is_known, rule, self.log_retention)
        rule = f"must be a whole number from {LEAST_MEMORY_MIB} to {MOST_MEMORY_MIB}"
        is_size = is_whole(self.memory_size_mib, LEAST_MEMORY_MIB, MOST_MEMORY_MIB)
        require("memory_size_mib", is_size, rule, self.memory_size_mib)
        rule = "must be True, False, or None for the default"
        for name in ("tracing", "recursive_loop"):
            flag = getattr(self, name)
            require(name, flag is None or isinstance(flag, bool), rule, flag)
        is_known = self.architecture is None or isinstance(self.architecture, lambda_.Architecture)
        rule = "must be a member of aws_lambda.Architecture, or None for the default"
        require("architecture", is_known, rule, self.architecture)


def handler_code(scope: Construct) -> lambda_.Code:
    """The code of all handlers, assembled beside the other assets of the cloud assembly."""
    stage = Stage.of(scope)
    if stage is None:
        raise AssetError(f"{scope.node.path} belongs to no App or Stage")
    # No byte code in the asset's hash: see `_add_byte_code`.
    return lambda_.Code.from_asset(str(assemble(Path(stage.asset_outdir))), exclude=["*.pyc"])


class FunctionFactory:
    """Makes the functions of one service, with the same runtime, table, logs and settings."""

    def __init__(
        self,
        scope: Construct,
        *,
        table: dynamodb.ITable,
        service_name: str,
        settings: FunctionSettings,
    ) -> None:
        """Adds a condition to the stack if the partition has to decide about something."""
        self.scope = scope
        self.table = table
        self._service_name = service_name
        self._settings = settings
        self._code = handler_code(scope)
        self._defaults: dict[str, tuple[str, str]] = {}
        if settings.tracing is None:
            self._defaults["TracingConfig.Mode"] = ("Active", "PassThrough")
        if settings.architecture is None:
            names = (lambda_.Architecture.ARM_64.name, lambda_.Architecture.X86_64.name)
            self._defaults["Architectures.0"] = names
        if self._defaults or settings.recursive_loop is None:
            usual = Fn.condition_equals(Aws.PARTITION, "aws")
            self._usual = CfnCondition(scope, "PartitionAws", expression=usual).logical_id

    def make(
        self,
        operation: str,
        *,
        scope: Construct | None = None,
        more_table_actions: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        timeout_seconds: int = FUNCTION_TIMEOUT_SECONDS,
    ) -> lambda_.Function:
        """Makes one of `OPERATIONS`."""
        construct_id, scope, settings = function_id(operation), scope or self.scope, self._settings
        does, table_actions, workflow_actions = OPERATIONS[operation]
        log_group = logs.LogGroup(
            scope,
            f"{construct_id}Logs",
            retention=settings.log_retention,
            removal_policy=settings.log_removal_policy,
        )
        actions = [f"dynamodb:{action}" for action in (*table_actions, *more_table_actions)]
        role = self._role(scope, f"{construct_id}Role", actions)
        log_group.grant_write(role)
        is_traced = settings.tracing is not False
        function = lambda_.Function(
            scope,
            construct_id,
            description=f"Fairlock: {does}",
            code=self._code,
            handler=f"lambdas.{operation}.handler",
            runtime=RUNTIME,
            architecture=settings.architecture or lambda_.Architecture.ARM_64,
            memory_size=settings.memory_size_mib,
            timeout=Duration.seconds(timeout_seconds),
            tracing=lambda_.Tracing.ACTIVE if is_traced else lambda_.Tracing.DISABLED,
            role=role,
            log_group=log_group,
            environment={
                TABLE_NAME_VARIABLE: self.table.table_name,
                SERVICE_NAME_VARIABLE: self._service_name,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": settings.log_level,
                **(environment or {}),
            },
        )
        _add_byte_code(function)
        for property_path, (usual, elsewhere) in self._defaults.items():
            value = Fn.condition_if(self._usual, usual, elsewhere)
            _resource_of(function).add_property_override(property_path, value)
        self._explain_to_cdk_nag(function, role)
        for action in workflow_actions:
            grant_workflow_action(self.scope, function, action)
            resource, reason = _WORKFLOW_ACTIONS[action]
            workflows = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
            acknowledge_wildcard(role, f"Resource::{workflows}:{resource}:*", reason)
        return function

    def _role(self, scope: Construct, construct_id: str, actions: Sequence[str]) -> iam.Role:
        """A role that may do these things to the table."""
        lambdas = iam.ServicePrincipal("lambda.amazonaws.com")
        role = iam.Role(scope, construct_id, assumed_by=lambdas)
        table = [self.table.table_arn]
        role.add_to_policy(iam.PolicyStatement(actions=actions, resources=table))
        if self.table.encryption_key is not None:
            grant_key(self.table.encryption_key, role)
        return role

    def allow_recursion(self, function: lambda_.Function) -> None:
        """Lets a function send messages to itself, where Lambda has such a setting.

        GovCloud, mx-central-1 and ap-southeast-6 have none (its developer guide, "Recursive loop
        detection").
        """
        allow = self._settings.recursive_loop
        if allow is not False:
            value = "Allow" if allow else Fn.condition_if(self._usual, "Allow", Aws.NO_VALUE)
            _resource_of(function).add_property_override("RecursiveLoop", value)

    def _explain_to_cdk_nag(self, function: lambda_.Function, role: iam.IRole) -> None:
        """Tells it, where a user runs it, why the function does not follow its rules."""
        acknowledge_wildcard(role, "Resource::*", "X-Ray's write actions take no resource.")
        reason = f"The handlers are tested with {RUNTIME.name}."
        Validations.of(function).acknowledge(Acknowledgment(id="AwsSolutions-L1", reason=reason))
        if self.table.encryption_key is not None:
            for finding in ("Action::kms:GenerateDataKey*", "Action::kms:ReEncrypt*"):
                acknowledge_wildcard(role, finding, _KEY_NEEDED)


def _resource_of(function: lambda_.Function) -> lambda_.CfnFunction:
    return cast("lambda_.CfnFunction", function.node.default_child)


def _add_byte_code(function: lambda_.Function) -> None:
    """Adds byte code to the copy of the handlers that CDK has made for this function.

    CDK names that copy by a hash of the sources. So a template is the same on every machine.
    """
    stage = Stage.of(function)
    copy = function.node.try_find_child("Code")  # At the first function that has this code.
    if stage is not None and isinstance(copy, s3_assets.Asset):
        add_byte_code(Path(stage.outdir, copy.asset_path), RUNTIME.name)


def acknowledge_wildcard(of: IConstruct, finding: str, reason: str) -> None:
    """Tells cdk-nag, where a user runs it, why a wildcard is in a policy."""
    acknowledgment = Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason)
    Validations.of(of).acknowledge(acknowledgment)


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
    function = functions.make("publish")
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
