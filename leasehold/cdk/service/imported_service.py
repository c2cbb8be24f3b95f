"""What every lock service offers, and `ImportedLockService`: one that is deployed already."""

from __future__ import annotations

import re
from typing import Final, Literal, NoReturn, Protocol, Unpack

from aws_cdk import Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from leasehold.cdk.service.administration import AdministrationFunctions
from leasehold.cdk.service.durable import (
    ACQUIRE_VARIABLE,
    RELEASE_VARIABLE,
    check_function,
    grant_on_all,
)
from leasehold.cdk.service.functions import grant_workflow_action
from leasehold.cdk.service.metrics import LockMetrics, MetricOptions
from leasehold.cdk.service.table import grant_administration_actions, grant_client_actions
from leasehold.errors import InvalidRequest

_FUNCTION_ARN: Final = re.compile(r"arn:[\w-]+:lambda:[\w-]+:\d{12}:function:[\w-]+(:[\w$-]+)?")


class ILockService(Protocol):
    """What a guard needs of a lock service, in whichever stack or app it is."""

    @property
    def acquire_function(self) -> lambda_.IFunction:
        """Grants or refuses a lock."""

    @property
    def heartbeat_function(self) -> lambda_.IFunction:
        """Renews a holder's lease."""

    @property
    def release_function(self) -> lambda_.IFunction:
        """Frees a lock."""


class LockServiceBase(LockMetrics, Construct):
    """Grants and metrics, the same for a service made here and for an imported one."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction
    administration: AdministrationFunctions | None = None
    publish_function: lambda_.IFunction | None = None

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table."""
        raise NotImplementedError

    @property
    def table_name(self) -> str:
        """The name of the lock table, for `LockClient`."""
        return self.table.table_name

    @property
    def reap_function(self) -> lambda_.IFunction | None:
        """Frees the locks of executions that ended; None if there is none or it is not known."""
        return None

    @property
    def has_dead_letters(self) -> bool:
        """Whether `metric_dead_letters` can be asked for."""
        return False

    @property
    def log_group_names(self) -> list[str] | None:
        """The log groups of all functions; None if they are not known."""
        return None

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """See `LockService.metric_dead_letters`."""
        raise NotImplementedError

    def grant_acquire(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal ask for locks. It should be able to release them, too."""
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

    def grant_client(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal use the table itself, as `LockClient` does.

        Such a principal can write anything into the table, wake executions that wait, and ask
        whether one that holds a lock still runs, of Step Functions and of durable functions: give
        this to code that may hold any lock of the service. `grant_use` lets it call the functions
        only.
        """
        return self._with_workflows(grant_client_actions(self.table, grantee), grantee)

    def grant_administration(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a person see all locks and release them by force, in Python or by `leasehold`.

        Such a principal reads the whole table, owner ids included, and can change every item: give
        this to those who operate the service. A policy of your own may allow the reads only.
        """
        return self._with_workflows(grant_administration_actions(self.table, grantee), grantee)

    def grant_inspect(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal describe and list all locks, by a function; no owner id is shown.

        Raises:
            InvalidRequest: the service has no such function, or was imported without it.
        """
        return self._required("inspect").grant_invoke(grantee)

    def grant_force_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal release any holder by force, by a function that logs who and why.

        Raises:
            InvalidRequest: the service has no such function, or was imported without it.
        """
        return self._required("force_release").grant_invoke(grantee)

    def _required(self, name: Literal["inspect", "force_release"]) -> lambda_.IFunction:
        found: lambda_.IFunction | None = getattr(self.administration, name, None)
        if found is None:
            rule = (
                "must be True where the service is made, and an imported one needs "
                f"{name}_function_arn"
            )
            raise InvalidRequest(field="administration", rule=rule, value=False)
        return found

    def _with_workflows(self, table: iam.Grant, grantee: iam.IGrantable) -> iam.Grant:
        """A client that hands over wakes the next workflow, and asks whether it still runs."""
        wake = grant_workflow_action(self, grantee, "SendTaskSuccess")
        ask = grant_workflow_action(self, grantee, "DescribeExecution")
        return table.combine(wake).combine(ask).combine(grant_on_all(self, grantee))

    def grant_durable(self, function: lambda_.Function) -> iam.Grant:
        """Lets a durable function hold locks with `leasehold.durable`.

        It may invoke the functions that acquire and release, and finds their names in its
        environment. An imported service must be deployed with `durable=True`; a service of this
        app is given what it needs for this function.

        Raises:
            InvalidRequest: it is a version, an alias or an imported function, or stands in another
                account or region.
        """
        check_function(function, service=self)
        function.add_environment(ACQUIRE_VARIABLE, self.acquire_function.function_arn)
        function.add_environment(RELEASE_VARIABLE, self.release_function.function_arn)
        return self.grant_acquire(function).combine(self.grant_release(function))


class ImportedLockService(LockServiceBase):
    """A lock service that another stack or app deployed; guards take it like their stack's own.

    It must be in the account and region of the workflows: only there can the service ask whether
    they still run, and wake those that wait.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
        table_name: str | None = None,
        encryption_key: kms.IKey | None = None,
        dead_letter_queue_arn: str | None = None,
        inspect_function_arn: str | None = None,
        force_release_function_arn: str | None = None,
    ) -> None:
        """Refers to what is deployed by outputs of the stack `Leasehold`.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            acquire_function_arn: the output AcquireFunctionArn.
            heartbeat_function_arn: the output HeartbeatFunctionArn.
            release_function_arn: the output ReleaseFunctionArn.
            table_name: the output LockTableName; for `table` and `grant_client`.
            encryption_key: the customer's key of that table, if it has one.
            dead_letter_queue_arn: the output ReapDeadLetterQueueArn; for `metric_dead_letters`.
            inspect_function_arn: the output InspectFunctionArn, if there is one.
            force_release_function_arn: the output ForceReleaseFunctionArn, if there is one.

        Raises:
            InvalidRequest: one of these is not the ARN of a function.
        """
        super().__init__(scope, construct_id)
        self._table = None
        if table_name is not None:
            self._table = dynamodb.Table.from_table_attributes(
                self, "Table", table_name=table_name, encryption_key=encryption_key
            )
        self._dead_letters = None
        if dead_letter_queue_arn is not None:
            self._dead_letters = sqs.Queue.from_queue_arn(
                self, "DeadLetterQueue", dead_letter_queue_arn
            )
        self.acquire_function = self._imported("acquire", acquire_function_arn)
        self.heartbeat_function = self._imported("heartbeat", heartbeat_function_arn)
        self.release_function = self._imported("release", release_function_arn)
        self.administration = AdministrationFunctions(
            inspect=self._imported_if("inspect", inspect_function_arn),
            force_release=self._imported_if("force_release", force_release_function_arn),
        )

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table.

        Raises:
            InvalidRequest: the service was imported without `table_name`.
        """
        return self._table or _left_out("table_name", "LockTableName")

    @property
    def has_dead_letters(self) -> bool:
        """Whether the service was imported with `dead_letter_queue_arn`."""
        return self._dead_letters is not None

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """See `LockService.metric_dead_letters`.

        Raises:
            InvalidRequest: the service was imported without `dead_letter_queue_arn`.
        """
        queue = self._dead_letters or _left_out("dead_letter_queue_arn", "ReapDeadLetterQueueArn")
        return queue.metric_approximate_number_of_messages_visible(**options)

    def watch(self, *_machines: sfn.IStateMachine) -> NoReturn:
        """Not possible: the rules of a deployed service belong to the app that deploys it.

        Raises:
            InvalidRequest: always.
        """
        rule = (
            "must be called in the app that deploys the service, with machines of any app "
            "(StateMachine.from_state_machine_arn)"
        )
        raise InvalidRequest(field="watch", rule=rule, value=self.node.path)

    def _imported_if(self, name: str, arn: str | None) -> lambda_.IFunction | None:
        return None if arn is None else self._imported(name, arn)

    def _imported(self, name: str, arn: str) -> lambda_.IFunction:
        is_text = isinstance(arn, str)
        if not is_text or not (Token.is_unresolved(arn) or _FUNCTION_ARN.fullmatch(arn)):
            rule = "must be the ARN of a Lambda function: arn:…:lambda:…:function:…"
            raise InvalidRequest(field=f"{name}_function_arn", rule=rule, value=arn)
        construct_id = name.title().replace("_", "")
        return lambda_.Function.from_function_attributes(
            self, construct_id, function_arn=arn, same_environment=True
        )


def _left_out(argument: str, output: str) -> NoReturn:
    rule = f"must be given where the service is imported: the stack's output {output}"
    raise InvalidRequest(field=argument, rule=rule, missing=True)
