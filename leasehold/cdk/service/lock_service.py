"""`LockService`: the lock table and the functions that decide who holds a lock."""

from __future__ import annotations

from typing import Unpack

from aws_cdk import RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from leasehold.cdk.service.functions import FunctionFactory, grant_workflow_action, handler_code
from leasehold.cdk.service.imported_service import ImportedLockService, LockServiceBase
from leasehold.cdk.service.metrics import MetricOptions
from leasehold.cdk.service.reaper import ExecutionReaper
from leasehold.cdk.service.table import grant_client_actions, lock_table
from leasehold.errors import InvalidRequest


class LockService(LockServiceBase):
    """A lock service of its own: one table, a function for each operation, and the reaper.

    Attributes:
        table: the lock table. It is not replicated to other regions, and must not be: a lock is
            decided by conditional writes, which hold within one region only.
        acquire_function, heartbeat_function, release_function: see `ILockService`.
        reaper: frees the locks of executions that ended without doing so; None if left out.
    """

    from_function_arns = staticmethod(ImportedLockService)
    """Refers to a service that another stack or app deployed, with the same arguments."""

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
                or of those that `watch` names. Without it a lock is free when its lease is over.
            removal_policy: what becomes of the table and the logs when the stack goes. Removing the
                table while work goes on lets two holders in: it is retained by default.
            deletion_protection: whether DynamoDB refuses to delete the table.
            encryption_key: the customer's key for the table; default is the key that AWS manages.
            log_retention: how long the functions' logs are retained.
            log_level: the functions' level of Python's logging. INFO is one line a call.
            memory_size_mib: memory, and with it CPU, of each function.
        """
        super().__init__(scope, construct_id)
        self.table = lock_table(
            self,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
            deletion_protection=deletion_protection,
        )
        functions = FunctionFactory(
            scope=self,
            code=handler_code(self),
            table=self.table,
            log_retention=log_retention,
            log_removal_policy=removal_policy,
            log_level=log_level,
            memory_size_mib=memory_size_mib,
        )
        self.acquire_function = functions.make(
            "Acquire",
            description="Leasehold: acquires locks",
            table_actions=["UpdateItem", "PutItem", "DeleteItem", "Query", "GetItem"],
            workflow_actions=["DescribeExecution", "SendTaskSuccess"],
        )
        self.release_function = functions.make(
            "Release",
            description="Leasehold: releases locks",
            table_actions=["UpdateItem", "DeleteItem", "Query", "GetItem"],
            workflow_actions=["DescribeExecution", "SendTaskSuccess"],
        )
        self.heartbeat_function = functions.make(
            "Heartbeat",
            description="Leasehold: renews leases",
            table_actions=["UpdateItem", "PutItem", "GetItem"],
            workflow_actions=["SendTaskSuccess", "SendTaskFailure"],
        )
        self.reaper = ExecutionReaper(self, "Reaper", functions=functions) if reaper else None

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Narrows the reaper from all state machines of the account and region to these.

        May be called again, for more of them. A machine may stand in any stack of the app, or be an
        imported one; its rule is made beside it. An imported one must be in the service's account
        and region; an ARN that is a parameter or an export cannot be checked.

        Raises:
            InvalidRequest: the service has no reaper, no machine was named, or one is elsewhere.
        """
        self._reaper_or_refuse("watch").watch(*machines)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that the reaper could not handle; an alarm above zero is worth having.

        Raises:
            InvalidRequest: the service has no reaper.
        """
        return self._reaper_or_refuse("metric_dead_letters").metric_dead_letters(**options)

    def _reaper_or_refuse(self, purpose: str) -> ExecutionReaper:
        if self.reaper is None:
            rule = f"must be True for {purpose}(): this service was made without a reaper"
            raise InvalidRequest(field="reaper", rule=rule, value=False)
        return self.reaper

    def grant_client(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal use the table itself, as `LockClient` does.

        Such a principal can write anything into the table, wake workflows that wait, and ask
        whether one that holds a lock still runs: give this to code that may hold any lock of the
        service. `grant_use` lets it call the functions only.
        """
        table = grant_client_actions(self.table, grantee)
        wake = grant_workflow_action(self, grantee, "SendTaskSuccess")
        return table.combine(wake).combine(
            grant_workflow_action(self, grantee, "DescribeExecution")
        )
