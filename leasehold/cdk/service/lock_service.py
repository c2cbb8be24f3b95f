"""`LockService`: the lock table and the functions that decide who holds a lock."""

from __future__ import annotations

from typing import Protocol, Unpack

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from leasehold.cdk.service.functions import FunctionMaker, handler_code
from leasehold.cdk.service.grants import grant_table, grant_workflows
from leasehold.cdk.service.metrics import LockMetrics, MetricOptions
from leasehold.cdk.service.reaper import ExecutionReaper
from leasehold.cdk.service.table import lock_table
from leasehold.cdk.service.watched import checked_machines
from leasehold.errors import InvalidRequest


class ILockService(Protocol):
    """What a guard needs of a lock service, whoever deployed it."""

    @property
    def acquire_function(self) -> lambda_.IFunction:
        """Grants or refuses a lock."""
        ...

    @property
    def heartbeat_function(self) -> lambda_.IFunction:
        """Renews a holder's lease."""
        ...

    @property
    def release_function(self) -> lambda_.IFunction:
        """Frees a lock."""
        ...


class _LockServiceBase(LockMetrics, Construct):
    """Grants and metrics, the same for a service made here and for an imported one."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction

    def grant_acquire(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal ask for locks. Whoever may acquire should also be able to release."""
        return self.acquire_function.grant_invoke(grantee)

    def grant_heartbeat(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal renew leases. It needs the owner_id of the acquisition for each."""
        return self.heartbeat_function.grant_invoke(grantee)

    def grant_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal release locks. It needs the owner_id of the acquisition for each."""
        return self.release_function.grant_invoke(grantee)

    def grant_use(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal acquire, renew and release. State machines with a guard need no call."""
        acquire, heartbeat = self.grant_acquire(grantee), self.grant_heartbeat(grantee)
        return acquire.combine(heartbeat).combine(self.grant_release(grantee))


class LockService(_LockServiceBase):
    """A lock service of its own: one table, a function for each operation, and the reaper.

    Attributes:
        table: the lock table. It is not replicated to other regions, and must not be: a lock is
            decided by conditional writes, which hold within one region only.
        acquire_function: grants or refuses a lock.
        heartbeat_function: renews a holder's lease.
        release_function: frees a lock.
        reaper: frees the locks of executions that ended without doing so; None if left out.
    """

    table: dynamodb.ITable
    reaper: ExecutionReaper | None

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        reaper: bool = True,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
        deletion_protection: bool = False,
        encryption_key: kms.IKey | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        log_level: str = "INFO",
        memory_size_mib: int = 256,
    ) -> None:
        """Declares the service.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            reaper: whether to free the locks of executions that fail, time out or are aborted, as
                soon as Step Functions reports it; of all state machines of the account and region,
                or of those that `watch` names. Without it they are free when their lease is over.
            removal_policy: what becomes of the table and the logs when the stack goes. Removing the
                table while work goes on lets two holders in: it is kept by default.
            deletion_protection: whether DynamoDB refuses to delete the table.
            encryption_key: the customer's key for the table; default is the key that AWS manages.
            log_retention: how long the functions' logs are kept.
            log_level: what the functions log, a level of Python's logging. INFO is a line a call.
            memory_size_mib: memory, and with it CPU, of each function.
        """
        super().__init__(scope, construct_id)
        self.table = lock_table(
            self,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
            deletion_protection=deletion_protection,
        )
        maker = FunctionMaker(
            scope=self,
            code=handler_code(self),
            table=self.table,
            encryption_key=encryption_key,
            log_retention=log_retention,
            log_removal_policy=removal_policy,
            log_level=log_level,
            memory_size_mib=memory_size_mib,
        )
        acquire = maker.make(
            "Acquire",
            description="Leasehold: acquires locks",
            table_actions=["UpdateItem", "PutItem", "DeleteItem", "Query", "GetItem"],
        )
        maker.let_describe_executions(acquire)
        maker.let_complete_tasks(acquire)
        release = maker.make(
            "Release",
            description="Leasehold: releases locks",
            table_actions=["UpdateItem", "DeleteItem", "Query", "GetItem"],
        )
        maker.let_describe_executions(release)
        maker.let_complete_tasks(release)
        heartbeat = maker.make(
            "Heartbeat",
            description="Leasehold: renews leases",
            table_actions=["UpdateItem", "PutItem", "GetItem"],
        )
        maker.let_complete_tasks(heartbeat)
        maker.let_fail_tasks(heartbeat)
        self.acquire_function = acquire
        self.heartbeat_function = heartbeat
        self.release_function = release
        self.reaper = ExecutionReaper(self, "Reaper", functions=maker) if reaper else None

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Narrows the reaper from all state machines of the account and region to these.

        May be called again, for more of them. A machine may stand in any stack of the app, or be an
        imported one; its rule is made beside it. An imported one must be in the service's account
        and region, and an ARN that is a parameter or an export is taken at its word.

        Raises:
            InvalidRequest: the service has no reaper, no machine was named, or one is elsewhere.
        """
        self._reaper_or_refuse("watch").watch(*checked_machines(machines))

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that the reaper could not work off; an alarm above zero is worth having.

        Raises:
            InvalidRequest: the service has no reaper.
        """
        return self._reaper_or_refuse("metric_dead_letters").metric_dead_letters(**options)

    def _reaper_or_refuse(self, purpose: str) -> ExecutionReaper:
        if self.reaper is None:
            rule = f"must be True for {purpose}(): without it this service hears of no execution"
            raise InvalidRequest(field="reaper", rule=rule, value=False)
        return self.reaper

    def grant_client(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal use the table itself, as `LockClient` does.

        Such a principal can write whatever it likes into the table: give this to code that may hold
        any lock of the service. `grant_use` lets it call the functions only.
        """
        table = grant_table(self.table, grantee)
        return table.combine(grant_workflows(Stack.of(self), grantee))

    @staticmethod
    def from_function_arns(
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
    ) -> ImportedLockService:
        """A service that another stack or app deployed; guards take it like one of their own.

        The ARNs are outputs of the stack `Leasehold`. It must be in the account and region of the
        workflows: only there can the service ask whether they still run, and wake those that wait.
        """
        return ImportedLockService(
            scope,
            construct_id,
            acquire_function_arn=acquire_function_arn,
            heartbeat_function_arn=heartbeat_function_arn,
            release_function_arn=release_function_arn,
        )


class ImportedLockService(_LockServiceBase):
    """A lock service that exists elsewhere, see `LockService.from_function_arns`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
    ) -> None:
        """Refers to the functions; creates nothing."""
        super().__init__(scope, construct_id)
        self.acquire_function = self._imported("Acquire", acquire_function_arn)
        self.heartbeat_function = self._imported("Heartbeat", heartbeat_function_arn)
        self.release_function = self._imported("Release", release_function_arn)

    def _imported(self, construct_id: str, arn: str) -> lambda_.IFunction:
        return lambda_.Function.from_function_attributes(
            self, construct_id, function_arn=arn, same_environment=True
        )
