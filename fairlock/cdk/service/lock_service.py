"""`LockService`: the lock table and the functions that decide who holds a lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Aws, CfnOutput, RemovalPolicy, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.fragments import check_flag, check_key, require
from fairlock.cdk.service.functions import (
    OPERATIONS,
    AdministrationFunctions,
    FunctionFactory,
    FunctionSettings,
    function_id,
    make_publisher,
)
from fairlock.cdk.service.reaper import DEFAULT_CONCURRENCY, ExecutionReaper, check_concurrency
from fairlock.cdk.service.served_functions import ServedFunctions
from fairlock.cdk.service.service_base import LockServiceBase, ReaperMetric
from fairlock.cdk.service.shared_service import (
    DEAD_LETTER_QUEUE_ARN,
    LOG_GROUP_NAMES,
    REAP_QUEUE_ARN,
    SERVES_EVERY_DURABLE_FUNCTION,
    SERVICE_NAME,
    WATCHES_EVERY_MACHINE,
    SharedLockService,
    function_arn,
    share_names,
)
from fairlock.errors import InvalidRequest, explained
from fairlock.names import TABLE_NAME_PARAMETER
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE

_ADMINISTRATION: Final = ("inspect", "force_release", "set_limit")
_MEET_DURABLE: Final = ("acquire", "heartbeat", "release", "reap", "force_release", "set_limit")
_TABLE_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_REMOVAL_POLICIES: Final = (
    RemovalPolicy.RETAIN,
    RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    RemovalPolicy.DESTROY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The settings of a new table; a `table` that exists already gets none but the policy."""

    table: dynamodb.ITable | None
    table_name: str | None
    removal_policy: RemovalPolicy
    deletion_protection: bool
    encryption_key: kms.IKey | None

    def __post_init__(self) -> None:
        """Checks the settings."""
        name, rule = (
            self.table_name,
            "must be 3 to 255 letters, digits, hyphens, underscores and dots",
        )
        is_name = isinstance(name, str) and (
            Token.is_unresolved(name) or _TABLE_NAME.fullmatch(name)
        )
        require("table_name", name is None or is_name, rule, name)
        rule = "must be RETAIN, RETAIN_ON_UPDATE_OR_DELETE or DESTROY of aws_cdk.RemovalPolicy"
        is_known = self.removal_policy in _REMOVAL_POLICIES
        require("removal_policy", is_known, rule, self.removal_policy)
        check_flag("deletion_protection", self.deletion_protection)
        check_key("encryption_key", self.encryption_key)
        if self.table is None:
            return
        is_table = hasattr(self.table, "table_arn")
        require("table", is_table, "must be an aws_dynamodb.ITable", self.table)
        rule = "must be left out with table=…, which has its own"
        for field in ("table_name", "deletion_protection", "encryption_key"):
            require(field, getattr(self, field) in (None, False), rule, True)  # noqa: FBT003 - that it is given

    def table_in(self, scope: Construct, *, has_stream: bool) -> dynamodb.ITable:
        """One table, on demand, with TTL, point-in-time recovery and encryption at rest.

        No `TableV2`: one replica more of that would let two regions grant the same lock.
        """
        text = dynamodb.AttributeType.STRING
        return self.table or dynamodb.Table(
            scope,
            "Table",
            table_name=self.table_name,
            partition_key=dynamodb.Attribute(name=PARTITION_KEY, type=text),
            sort_key=dynamodb.Attribute(name=SORT_KEY, type=text),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=TTL_ATTRIBUTE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            encryption=None if self.encryption_key else dynamodb.TableEncryption.AWS_MANAGED,
            encryption_key=self.encryption_key,
            removal_policy=self.removal_policy,
            deletion_protection=self.deletion_protection,
            stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if has_stream else None,
        )


_NOT_IN_A_DIMENSION: Final = re.compile(r"[^!-~]")
_LONGEST_PLACE: Final = 120


class LockService(LockServiceBase[lambda_.Function]):
    """A lock service of its own: one table, a function for each operation, and the reaper.

    Attributes:
        table: the lock table. It must not be replicated to other regions: a lock is decided by
            conditional writes, which hold between regions only with multi-region strong
            consistency, and that has neither transactions nor TTL.
        acquire_function, heartbeat_function, release_function: see `ILockService`.
        reaper: frees the locks of executions that ended without doing so; None if left out.
        administration: the functions that show, free and pause locks; None if left out.
        publish_function: tells EventBridge of lifecycle events; None if left out.
    """

    from_stack = staticmethod(SharedLockService)
    """Refers to the service that a stack shares, by the stack's name, with the same arguments."""

    @explained
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        reaper: bool = True,
        reaper_concurrency: int = DEFAULT_CONCURRENCY,
        durable: bool = False,
        administration: bool = False,
        lifecycle_events: bool = False,
        pace: bool = False,
        table: dynamodb.ITable | None = None,
        table_name: str | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        deletion_protection: bool = False,
        encryption_key: kms.IKey | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        log_level: str = "INFO",
        memory_size_mib: int = 256,
        tracing: bool | None = None,
        architecture: lambda_.Architecture | None = None,
        recursive_loop: bool | None = None,
    ) -> None:
        """Declares the service.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            reaper: whether to free the locks of executions that fail, time out or are aborted, as
                soon as Step Functions reports it; of all state machines of the account and region,
                or of those that `watch` names. Without it a lock is free when its lease is over.
            reaper_concurrency: how many of its functions run at once at most, from 2 to 1,000; stay
                below the account's concurrency.
            durable: whether to serve every durable function of the account and region. Without it
                the service serves those that `grant_durable` names.
            administration: whether to make three functions by which people see locks, pause them
                and release them by force without access to the table: `grant_inspect`,
                `grant_set_limit` and `grant_force_release` let them.
            lifecycle_events: whether to tell EventBridge when a lock is granted, released, lost,
                taken over or reaped (docs/monitoring.md). Calls send no request more for it.
            pace: whether to make the function that the states `Pace` of workflows call, and any
                caller whom `grant_pace` lets. Python clients take turns without it.
            table: a table that exists in this account and region, with the key and the TTL
                attribute that this service makes. Default is a new table.
            table_name: the name of a new table. With a name, a table that was retained makes the
                deployment fail, instead of standing unused beside a second one.
            removal_policy: what becomes of a new table and the logs when the stack goes. Removing
                the table while work goes on lets two holders in: it is retained by default, unless
                its own creation fails. RETAIN keeps it even then.
            deletion_protection: whether DynamoDB refuses to delete the table.
            encryption_key: the customer's key for the table; default is the key that AWS manages.
            log_retention: how long the functions' logs are retained.
            log_level: the functions' level of Python's logging. INFO is one line a call.
            memory_size_mib: memory, and with it CPU, of each function, from 128 to 10,240.
            tracing: whether X-Ray traces the functions; default is yes in the partition `aws`.
            architecture: of the functions' processors; default is arm64 in the partition `aws` and
                x86_64 in others.
            recursive_loop: whether the template lets the reaper's function send messages to itself
                for more than 16 rounds; default is yes in the partition `aws`. Give False for a
                region whose Lambda has no such setting.

        Raises:
            InvalidRequest: names the argument and its rule, before anything is declared.
        """
        settings = FunctionSettings(
            log_retention=log_retention,
            log_removal_policy=removal_policy,
            log_level=log_level,
            memory_size_mib=memory_size_mib,
            tracing=tracing,
            architecture=architecture,
            recursive_loop=recursive_loop,
        )
        table_settings = TableSettings(
            table=table,
            table_name=table_name,
            removal_policy=removal_policy,
            deletion_protection=deletion_protection,
            encryption_key=encryption_key,
        )
        check_concurrency(reaper_concurrency)
        flags = {"reaper": reaper, "durable": durable, "administration": administration}
        for name, flag in {**flags, "lifecycle_events": lifecycle_events, "pace": pace}.items():
            check_flag(name, flag)
        super().__init__(scope, construct_id)
        self._table = table_settings.table_in(self, has_stream=lifecycle_events)
        # By reference: without the CDK the stack may have any name.
        own_name = f"{Aws.STACK_NAME}/{self._place()}"
        functions = FunctionFactory(
            self, table=self._table, service_name=own_name, settings=settings
        )
        made = {name: functions.make(name) for name in ("acquire", "release", "heartbeat")}
        self.reaper: ExecutionReaper | None = None
        if reaper:
            self.reaper = ExecutionReaper(
                self, "Reaper", functions=functions, concurrency=reaper_concurrency
            )
            made["reap"] = self.reaper.function
        self.has_dead_letters = reaper
        if administration:
            shown = {name: functions.make(name) for name in _ADMINISTRATION}
            self.administration = AdministrationFunctions(**shown)
            made |= shown
        if lifecycle_events:
            self.publish_function = made["publish"] = make_publisher(functions)
        if pace:
            made["pace"] = functions.make("pace")
        self._functions = {name: made[name] for name in OPERATIONS if name in made}
        meet_durable = [made[name] for name in _MEET_DURABLE if name in made]
        self._serves_all_durable = durable
        self._served = ServedFunctions(self, meet_durable)
        self._shared_names: Construct | None = None
        if durable:
            self._served.serve_all()
            if self.reaper is not None:
                self.reaper.watch_every_durable_function()

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table."""
        return self._table

    @property
    def reap_function(self) -> lambda_.Function | None:
        """Frees the locks of executions that ended; None without a reaper."""
        return self._functions.get("reap")

    @property
    def service_name(self) -> str:
        """The stack's name and the construct's path in it, such as `Fairlock/Locks`."""
        return f"{Stack.of(self).stack_name}/{self._place()}"

    def _place(self) -> str:
        """The path in the stack. CloudWatch takes ASCII in a dimension."""
        own = self.node.scopes[self.node.scopes.index(Stack.of(self)) + 1 :]
        return _NOT_IN_A_DIMENSION.sub("", "/".join(each.node.id for each in own))[:_LONGEST_PLACE]

    def _function(self, operation: str) -> lambda_.Function:
        if operation not in self._functions:
            field, named = "administration", operation
            if operation == "pace":
                field, named = "pace", "for a pace"
            rule = f"must be True where the service is made, which so has no function {named}"
            raise InvalidRequest(field=field, rule=rule, value=False)
        return self._functions[operation]

    @property
    def log_group_names(self) -> list[str]:
        """The log groups of all functions."""
        return [function.log_group.log_group_name for function in self._functions.values()]

    def grant_durable(
        self, function: lambda_.Function, *, key: kms.IKey | None = None
    ) -> iam.Grant:
        """See `LockServiceBase.grant_durable`; and serves the function."""
        grant = super().grant_durable(function, key=key)
        if not self._serves_all_durable:
            self._served.serve(function)
            if self.reaper is not None:
                self.reaper.watch_durable(function)
        if key is not None:
            self._served.allow_key(function, key)
        return grant

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Narrows the reaper from all state machines of the account and region to these.

        You can call it again for more machines, of any stack of the app or imported. They must be
        in the service's account and region; an ARN that is a parameter or an export is not checked.

        Raises:
            InvalidRequest: the service has no reaper, no machine was named, or one is elsewhere.
        """
        self._reaper_or_refuse("watch").watch(*machines)
        if self._shared_names is not None:
            self._shared_names.node.try_remove_child(WATCHES_EVERY_MACHINE)

    def share(self) -> None:
        """Lets other stacks of the account and region find this service by the stack's name.

        They call `LockService.from_stack(…, stack_name=…)`. One service of a stack can be shared,
        and none of a nested stack.
        """
        names = {**self._names(), LOG_GROUP_NAMES: ",".join(self.log_group_names)}
        if self.reaper is not None and self.reaper.watches_every_machine:
            names[WATCHES_EVERY_MACHINE] = "true"
        if self._serves_all_durable:
            names[SERVES_EVERY_DURABLE_FUNCTION] = "true"
        self._shared_names = share_names(self, names)

    def add_outputs(self) -> None:
        """Gives the stack the outputs that the stack `Fairlock` has, once: names and ARNs."""
        stack = Stack.of(self)
        is_first = stack.node.try_find_child(TABLE_NAME_PARAMETER) is None
        rule = f"must be called once in a stack, which has an output {TABLE_NAME_PARAMETER} already"
        require("add_outputs", is_first, rule, self.node.path)
        for name, value in self._names().items():
            CfnOutput(stack, name, value=value)

    def _names(self) -> dict[str, str]:
        """Name, ARN or URL of the table, of each function and of the reaper's queues."""
        names = {
            # By reference: without the CDK the stack may have any name.
            SERVICE_NAME: f"{Aws.STACK_NAME}/{self._place()}",
            TABLE_NAME_PARAMETER: self.table.table_name,
            "LockTableArn": self.table.table_arn,
        }
        for operation, function in self._functions.items():
            names[f"{function_id(operation)}FunctionName"] = function.function_name
            names[function_arn(operation)] = function.function_arn
        if self.reaper is not None:
            queue, dead_letters = self.reaper.queue, self.reaper.dead_letter_queue
            names["ReapQueueUrl"], names[REAP_QUEUE_ARN] = queue.queue_url, queue.queue_arn
            names["ReapDeadLetterQueueUrl"] = dead_letters.queue_url
            names[DEAD_LETTER_QUEUE_ARN] = dead_letters.queue_arn
        return names

    def _reap_queue(self, purpose: ReaperMetric) -> sqs.Queue:
        reaper = self._reaper_or_refuse(purpose)
        return reaper.queue if purpose == "metric_oldest_event" else reaper.dead_letter_queue

    def _reaper_or_refuse(self, purpose: str) -> ExecutionReaper:
        if self.reaper is None:
            rule = f"must be True for {purpose}(): this service was made without a reaper"
            raise InvalidRequest(field="reaper", rule=rule, value=False)
        return self.reaper
