"""`SharedLockService`: a service that another stack deployed, found by the name of that stack.

The names are parameters of Systems Manager, not exports: CloudFormation refuses to change an export
that another stack imports, so one user of the service could block its deployments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.fragments import check_key, require
from fairlock.cdk.service.functions import function_id
from fairlock.cdk.service.reaper import check_machine
from fairlock.cdk.service.service_base import LockServiceBase, ReaperMetric
from fairlock.errors import InvalidRequest, explained
from fairlock.names import TABLE_NAME_PARAMETER, stack_parameter
from fairlock.wire import rules

SERVICE_NAME: Final = "ServiceName"
LOG_GROUP_NAMES: Final = "LogGroupNames"
DEAD_LETTER_QUEUE_ARN: Final = "ReapDeadLetterQueueArn"
REAP_QUEUE_ARN: Final = "ReapQueueArn"
WATCHES_EVERY_MACHINE: Final = "WatchesEveryMachine"
SERVES_EVERY_DURABLE_FUNCTION: Final = "ServesEveryDurableFunction"
_SHARED_NAMES: Final = {
    *(SERVICE_NAME, TABLE_NAME_PARAMETER, DEAD_LETTER_QUEUE_ARN, REAP_QUEUE_ARN, LOG_GROUP_NAMES),
    *(WATCHES_EVERY_MACHINE, SERVES_EVERY_DURABLE_FUNCTION),
}
_SHARED: Final = "SharedLockService"


def function_arn(operation: str) -> str:
    """The name of the output and the parameter with the ARN of a function."""
    return f"{function_id(operation)}FunctionArn"


def parameter_name(stack_name: str, name: str) -> str:
    """Where in the Parameter Store a stack's service tells a name."""
    is_known = not isinstance(stack_name, str) or not Token.is_unresolved(stack_name)
    require("stack_name", is_known, "must be known at synth: a token has no value yet", stack_name)
    rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
    return stack_parameter(stack_name, name)


def share_names(service: Construct, names: Mapping[str, str]) -> Construct:
    """Writes what `LockService.from_stack` reads: one parameter a name, free of charge.

    What the service lacks has no parameter.
    """
    stack = Stack.of(service)
    parameter_name(stack.stack_name, TABLE_NAME_PARAMETER)
    rule = "must be called once in a stack: the service is found by the stack's name"
    require("share", stack.node.try_find_child(_SHARED) is None, rule, service.node.path)
    shared = Construct(stack, _SHARED)
    for name, value in names.items():
        if name in _SHARED_NAMES or name.endswith("FunctionArn"):
            ssm.StringParameter(
                shared,
                name,
                parameter_name=parameter_name(stack.stack_name, name),
                string_value=value,
                description="Fairlock: read by stacks that use this lock service",
            )
    return shared


class SharedLockService(LockServiceBase[lambda_.IFunction]):
    """A lock service that another stack of this account and region deployed and shares.

    Its names come from the Parameter Store each time CloudFormation deploys the stack that uses
    it, which needs `ssm:GetParameters`. So such a stack blocks no deployment of the service's
    stack. If the service lacks what a stack uses, CloudFormation refuses to deploy that, and names
    the missing parameter.

    Not guaranteed: that the service stays. If its stack goes, or gets other functions or another
    table, the stacks that use it must be deployed again.
    """

    @explained
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stack_name: str,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        """Refers to a deployed service.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            stack_name: the stack that deployed the service, and called `share` of it.
            encryption_key: the customer's key of the lock table, if it has one, for `grant_client`
                and `grant_administration`.
        """
        self.stack_name = stack_name
        parameter_name(stack_name, TABLE_NAME_PARAMETER)
        check_key("encryption_key", encryption_key)
        super().__init__(scope, construct_id)
        self._functions: dict[str, lambda_.IFunction] = {}
        self._queues: dict[str, sqs.IQueue] = {}
        self._encryption_key = encryption_key
        self._table: dynamodb.ITable | None = None

    # What is found when it is first asked for: CloudFormation warns of a parameter without use.
    # Deploying fails without a function or a queue that is asked for.

    @property
    def table(self) -> dynamodb.ITable:
        """The lock table."""
        if self._table is None:
            key, name = self._encryption_key, self._deployed(TABLE_NAME_PARAMETER)
            self._table = dynamodb.Table.from_table_attributes(
                self, "Table", table_name=name, encryption_key=key
            )
        return self._table

    @property
    def service_name(self) -> str:
        """What the service's functions call themselves in their metrics and logs."""
        return self._deployed(SERVICE_NAME)

    @property
    def log_group_names(self) -> list[str]:
        """The log groups of all functions."""
        return Fn.split(",", self._deployed(LOG_GROUP_NAMES))

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Makes sure that the service's reaper watches these machines.

        If it was narrowed where it is made, CloudFormation refuses to deploy this stack.
        """
        for machine in machines:
            check_machine(machine, service=self)
        self._deployed(WATCHES_EVERY_MACHINE)

    def grant_durable(
        self, function: lambda_.Function, *, key: kms.IKey | None = None
    ) -> iam.Grant:
        """See `LockServiceBase.grant_durable`.

        If the service does not serve every durable function, CloudFormation refuses to deploy this
        stack. A key is refused: the roles that would use it are not known here.
        """
        check_key("key", key)
        if key is not None:
            rule = (
                "must be left out for a service of another stack, whose roles are not known here: "
                "let the key's policy allow kms:Decrypt to the roles of its functions"
            )
            raise InvalidRequest(field="key", rule=rule, value=key.node.path)
        grant = super().grant_durable(function)
        self._deployed(SERVES_EVERY_DURABLE_FUNCTION)
        return grant

    def _reap_queue(self, purpose: ReaperMetric) -> sqs.IQueue:
        name = REAP_QUEUE_ARN if purpose == "metric_oldest_event" else DEAD_LETTER_QUEUE_ARN
        if name not in self._queues:
            queue = sqs.Queue.from_queue_arn(self, name.removesuffix("Arn"), self._deployed(name))
            self._queues[name] = queue
        return self._queues[name]

    def _function(self, operation: str) -> lambda_.IFunction:
        if operation not in self._functions:
            arn = self._deployed(function_arn(operation))
            self._functions[operation] = lambda_.Function.from_function_attributes(
                self, function_id(operation), function_arn=arn, same_environment=True
            )
        return self._functions[operation]

    def _deployed(self, name: str) -> str:
        """What CloudFormation finds in the Parameter Store when it deploys the stack."""
        return ssm.StringParameter.value_for_string_parameter(
            self, parameter_name(self.stack_name, name)
        )
