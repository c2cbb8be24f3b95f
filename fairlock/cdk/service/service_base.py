"""What every lock service offers, whether it is made here or found by the name of its stack.

The only dimension of its metrics is the service, because lock names are unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack

from aws_cdk import Duration, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fairlock.cdk.fragments import check_grantee, check_key, check_place, grant_call, require
from fairlock.cdk.service.functions import (
    AdministrationFunctions,
    grant_key,
    grant_workflow_action,
)
from fairlock.cdk.service.served_functions import check_function, grant_on_all
from fairlock.errors import InvalidRequest
from fairlock.names import (
    ACQUIRE_FUNCTION_VARIABLE,
    NAMESPACE,
    RELEASE_FUNCTION_VARIABLE,
    MetricName,
)
from fairlock.protocol.schema import partition_of, partition_of_execution, partition_of_pace
from fairlock.wire import rules

_STATISTICS: Final = {
    MetricName.WAIT_TIME: "p95",
    MetricName.HELD_TIME: "p95",
    MetricName.HAND_OFF_LATENCY: "p95",
    MetricName.PACE_WAIT: "p95",
    MetricName.QUEUE_LENGTH: "Maximum",
    MetricName.CURRENT_WAIT: "Maximum",
}
"""Default statistics; every other metric is a count, shown as its sum."""

_READS: Final = ("GetItem", "Query")
_ADMINISTRATION: Final = (
    *("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem"),
    *("DescribeTable", "DescribeTimeToLive"),
)
_WRITES: Final = ("ConditionCheckItem", "PutItem", "UpdateItem", "DeleteItem")


_LEADING_KEYS: Final = "dynamodb:LeadingKeys"


def _of_partitions(beginnings: Sequence[str]) -> dict[str, dict[str, object]]:
    """Conditions of IAM: only items whose partition keys begin with one of these."""
    return {
        # Of no keys, "for all values" is true: a request without a key is refused by Null.
        "ForAllValues:StringLike": {_LEADING_KEYS: [f"{each}*" for each in beginnings]},
        "Null": {_LEADING_KEYS: "false"},
    }


def _check_prefix(prefix: str) -> None:
    rule = "must be the beginning of lock names, such as 'team-a/', without * ? and $"
    is_plain = rules.PREFIX.allows(prefix) and not Token.is_unresolved(prefix)
    require("prefix", is_plain and prefix and not set(prefix) & set("*?$"), rule, prefix)


class MetricOptions(TypedDict, total=False):
    """The options of every CloudWatch metric: `aws_cloudwatch.MetricOptions`."""

    account: str
    color: str
    dimensions_map: dict[str, str]
    id: str
    label: str
    period: Duration
    region: str
    stack_account: str
    stack_region: str
    statistic: str
    unit: cloudwatch.Unit
    visible: bool


ReaperMetric = Literal["metric_dead_letters", "metric_oldest_event"]


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


Function_co = TypeVar("Function_co", bound=lambda_.IFunction, covariant=True)


class LockServiceBase(Construct, Generic[Function_co]):
    """Grants and metrics, the same for a service made here and for one of another stack."""

    publish_function: Function_co | None = None
    administration: AdministrationFunctions | None = None
    has_dead_letters: bool = True
    """Whether `metric_dead_letters` can be asked for."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        """Makes the construct."""
        check_place(scope, construct_id)
        super().__init__(scope, construct_id)

    def _function(self, operation: str) -> Function_co:
        """The function of an operation; `InvalidRequest` if the service is known to have none."""
        raise NotImplementedError

    @property
    def acquire_function(self) -> Function_co:
        """Grants or refuses a lock."""
        return self._function("acquire")

    @property
    def heartbeat_function(self) -> Function_co:
        """Renews a holder's lease."""
        return self._function("heartbeat")

    @property
    def release_function(self) -> Function_co:
        """Frees a lock."""
        return self._function("release")

    @property
    def pace_function(self) -> Function_co:
        """Reserves slots of a pace."""
        return self._function("pace")

    @property
    def reap_function(self) -> Function_co | None:
        """Frees the locks of executions that ended; None without a reaper."""
        return self._function("reap")

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table."""
        raise NotImplementedError

    @property
    def table_name(self) -> str:
        """The name of the lock table, for `LockClient`."""
        return self.table.table_name

    @property
    def service_name(self) -> str:
        """The value of the dimension `service`."""
        raise NotImplementedError

    @property
    def log_group_names(self) -> list[str]:
        """The log groups of all functions."""
        raise NotImplementedError

    def metric(self, name: MetricName | str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Any metric of `fairlock.names.MetricName`, by default over 5 minutes."""
        try:
            known = MetricName(name)
        except ValueError:
            rule = f"must be one of {', '.join(MetricName)}"
            raise InvalidRequest(field="name", rule=rule, value=name) from None
        options.setdefault("statistic", _STATISTICS.get(known, "Sum"))
        options.setdefault("dimensions_map", {"service": self.service_name})
        return cloudwatch.Metric(namespace=NAMESPACE, metric_name=known.value, **options)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that the reaper could not handle; an alarm above zero is worth having."""
        queue = self._reap_queue("metric_dead_letters")
        return queue.metric_approximate_number_of_messages_visible(**options)

    def metric_oldest_event(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Seconds that the reaper's oldest event has waited; more than half an hour is an alarm."""
        queue = self._reap_queue("metric_oldest_event")
        return queue.metric_approximate_age_of_oldest_message(**options)

    def _reap_queue(self, purpose: ReaperMetric) -> sqs.IQueue:
        raise NotImplementedError

    def grant_acquire(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal ask for locks. It should be able to release them, too."""
        return grant_call(self.acquire_function, grantee)

    def grant_heartbeat(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal renew leases. It needs the owner_id of the acquisition for each."""
        return grant_call(self.heartbeat_function, grantee)

    def grant_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal release locks. It needs the owner_id of the acquisition for each."""
        return grant_call(self.release_function, grantee)

    def grant_use(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal acquire, renew and release. State machines with a guard need no call."""
        acquire, heartbeat = self.grant_acquire(grantee), self.grant_heartbeat(grantee)
        return acquire.combine(heartbeat).combine(self.grant_release(grantee))

    def grant_client(self, grantee: iam.IGrantable, *, prefix: str | None = None) -> iam.Grant:
        """Lets a principal use the table itself, as `LockClient` does.

        It can write anything into the table, wake executions that wait, and ask of all whether they
        still run: give this to code that may hold any lock of the service.

        Args:
            grantee: the principal.
            prefix: only locks and paces whose names begin so, such as "team-a/". DynamoDB refuses
                all other items of the table (`dynamodb:LeadingKeys`) but reads of single claims.
        """
        if prefix is None:
            return self._grant_on_table(grantee, _READS + _WRITES)
        _check_prefix(prefix)
        partitions = [partition_of(prefix), partition_of_pace(prefix)]
        names = self._grant_on_table(grantee, _READS + _WRITES, _of_partitions(partitions))
        # An acquire that finds the lease of a workflow over reads its claim. The claim's key ends
        # with the owner id, so this lets no one see claims of other owners than those that they
        # see anyway.
        claims = _of_partitions([partition_of_execution("")])
        return names.combine(self._grant_on_table(grantee, ["GetItem"], claims))

    def grant_administration(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a person see, pause and release all locks by force, in Python or by `fairlock`.

        Such a principal reads the whole table, owner ids included, and can change every item.
        """
        return self._grant_on_table(grantee, _ADMINISTRATION)

    def grant_inspect(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal describe and list all locks, by a function; no owner id is shown."""
        return grant_call(self._function("inspect"), grantee)

    def grant_force_release(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal release any holder by force, by a function that logs who and why."""
        return grant_call(self._function("force_release"), grantee)

    def grant_set_limit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal limit, pause and resume all locks, by a function that logs it."""
        return grant_call(self._function("set_limit"), grantee)

    def grant_pace(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets a principal reserve slots of any pace. State machines with a `Pace` need no call."""
        return grant_call(self.pace_function, grantee)

    def _grant_on_table(
        self,
        grantee: iam.IGrantable,
        actions: Sequence[str],
        conditions: Mapping[str, Mapping[str, object]] | None = None,
    ) -> iam.Grant:
        """Allows requests to the table, with its key, and what hand-offs ask of workflows."""
        check_grantee(grantee)
        if self.table.encryption_key is not None:
            grant_key(self.table.encryption_key, grantee)
        actions = [f"dynamodb:{action}" for action in sorted(actions)]
        granted = (
            self.table.grant(grantee, *actions)
            if conditions is None
            else iam.Grant.add_to_principal(
                grantee=grantee,
                actions=actions,
                resource_arns=[self.table.table_arn],
                conditions=conditions,
            )
        )
        wake = grant_workflow_action(self, grantee, "SendTaskSuccess")
        ask = grant_workflow_action(self, grantee, "DescribeExecution")
        return granted.combine(wake).combine(ask).combine(grant_on_all(self, grantee))

    def grant_durable(
        self, function: lambda_.Function, *, key: kms.IKey | None = None
    ) -> iam.Grant:
        """Lets a durable function hold locks with `fairlock.durable`.

        It finds the functions that acquire and release by its environment. A service of another
        stack must be deployed with `durable=True`.

        Args:
            function: the durable function; no version, alias or imported one.
            key: the customer's key of its DurableConfig, which the service's functions may then
                use: without it they cannot wake its executions. The key's policy must leave
                permissions to IAM, as that of a `kms.Key` does.
        """
        check_function(function, service=self)
        check_key("key", key)
        function.add_environment(ACQUIRE_FUNCTION_VARIABLE, self.acquire_function.function_arn)
        function.add_environment(RELEASE_FUNCTION_VARIABLE, self.release_function.function_arn)
        return self.grant_acquire(function).combine(self.grant_release(function))


AnyLockService = LockServiceBase[lambda_.IFunction]
"""A service made here or one of another stack."""
