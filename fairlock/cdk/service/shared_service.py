"""`SharedLockService`: a service that another stack deployed, found by the name of that stack."""

from __future__ import annotations

from typing import Unpack

from aws_cdk import Fn
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.service.deployed_names import (
    DEAD_LETTER_QUEUE_ARN,
    LOG_GROUP_NAMES,
    SERVES_EVERY_DURABLE_FUNCTION,
    SERVICE_NAME,
    TABLE_NAME,
    WATCHES_EVERY_MACHINE,
    function_arn,
    parameter_name,
)
from fairlock.cdk.service.imported_service import LockServiceBase
from fairlock.cdk.service.metrics import MetricOptions
from fairlock.cdk.service.watched_machines import check_machine


class SharedLockService(LockServiceBase):
    """A lock service that another stack of this account and region deployed and shares.

    The names of its table and functions come from the Parameter Store, each time CloudFormation
    deploys the stack that uses the service. The deployment needs `ssm:GetParameters`.

    Guarantees:
        * A stack that uses the service does not block deployments of the service's stack.
        * If the service lacks something that a stack uses, CloudFormation refuses to deploy the
          stack and names the missing parameter; nothing is changed.

    Not guaranteed:
        * That the service stays. If its stack goes, or gets other functions or another table, the
          stacks that use it must be deployed again.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stack_name: str = "Fairlock",
        encryption_key: kms.IKey | None = None,
    ) -> None:
        """Refers to a deployed service.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            stack_name: the name of the stack that deployed the service, and called `share` of it.
            encryption_key: the customer's key of the lock table, if it has one, for `grant_client`
                and `grant_administration`.

        Raises:
            InvalidRequest: no stack can have this name, or it is not known at synth.
        """
        self.stack_name = stack_name
        parameter_name(stack_name, TABLE_NAME)
        super().__init__(scope, construct_id)
        self._functions: dict[str, lambda_.IFunction] = {}
        self._dead_letters: sqs.IQueue | None = None
        self.acquire_function = self._function("Acquire")
        self.heartbeat_function = self._function("Heartbeat")
        self.release_function = self._function("Release")
        self._table = dynamodb.Table.from_table_attributes(
            self, "Table", table_name=self._deployed(TABLE_NAME), encryption_key=encryption_key
        )

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table."""
        return self._table

    @property
    def service_name(self) -> str:
        """What the service's functions call themselves in their metrics and logs."""
        return self._deployed(SERVICE_NAME)

    @property
    def reap_function(self) -> lambda_.IFunction:
        """Frees the locks of executions that ended. Deploying fails without a reaper."""
        return self._function("Reap")

    @property
    def has_dead_letters(self) -> bool:
        """Always True. Without a reaper, CloudFormation refuses to deploy what uses its metric."""
        return True

    @property
    def log_group_names(self) -> list[str]:
        """The log groups of all functions."""
        return Fn.split(",", self._deployed(LOG_GROUP_NAMES))

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Makes sure that the service's reaper watches these machines.

        It watches every machine of the account and region, unless it was narrowed where it is made:
        then CloudFormation refuses to deploy the stack of this construct.

        Raises:
            InvalidRequest: a machine is in another account or region.
        """
        for machine in machines:
            check_machine(machine, service=self)
        self._deployed(WATCHES_EVERY_MACHINE)

    def grant_durable(self, function: lambda_.Function) -> iam.Grant:
        """See `LockServiceBase.grant_durable`.

        If the service does not serve every durable function, CloudFormation refuses to deploy the
        stack of this construct.
        """
        grant = super().grant_durable(function)
        self._deployed(SERVES_EVERY_DURABLE_FUNCTION)
        return grant

    def grant_inspect(self, grantee: iam.IGrantable) -> iam.Grant:
        """See `LockService.grant_inspect`. Deploying fails without this function."""
        return self._function("Inspect").grant_invoke(grantee)

    def grant_force_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """See `LockService.grant_force_release`. Deploying fails without this function."""
        return self._function("ForceRelease").grant_invoke(grantee)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """See `LockService.metric_dead_letters`. Deploying fails without a reaper."""
        if self._dead_letters is None:
            arn = self._deployed(DEAD_LETTER_QUEUE_ARN)
            self._dead_letters = sqs.Queue.from_queue_arn(self, "DeadLetterQueue", arn)
        return self._dead_letters.metric_approximate_number_of_messages_visible(**options)

    def _function(self, operation: str) -> lambda_.IFunction:
        if operation not in self._functions:
            arn = self._deployed(function_arn(operation))
            self._functions[operation] = lambda_.Function.from_function_attributes(
                self, operation, function_arn=arn, same_environment=True
            )
        return self._functions[operation]

    def _deployed(self, name: str) -> str:
        """What CloudFormation finds in the Parameter Store when it deploys the stack."""
        return ssm.StringParameter.value_for_string_parameter(
            self, parameter_name(self.stack_name, name)
        )
