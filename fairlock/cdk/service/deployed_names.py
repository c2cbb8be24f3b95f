"""The names of what a service deploys: as outputs of its stack, and as parameters for other stacks.

The parameters are in the Parameter Store of Systems Manager, not exports of the stack:
CloudFormation refuses to change or remove an export that another stack imports, so one user of the
service could block its deployments. A parameter binds nobody: a stack that uses the service reads
it at each of its own deployments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aws_cdk import CfnOutput, Stack, Token
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from fairlock.cdk.service.reaper import ExecutionReaper
from fairlock.errors import InvalidRequest
from fairlock.metrics import TABLE_NAME_PARAMETER, stack_parameter
from fairlock.wire import rules

TABLE_NAME: Final = TABLE_NAME_PARAMETER
SERVICE_NAME: Final = "ServiceName"
LOG_GROUP_NAMES: Final = "LogGroupNames"
DEAD_LETTER_QUEUE_ARN: Final = "ReapDeadLetterQueueArn"
WATCHES_EVERY_MACHINE: Final = "WatchesEveryMachine"
SERVES_EVERY_DURABLE_FUNCTION: Final = "ServesEveryDurableFunction"
_SHARED: Final = "SharedLockService"


def function_arn(operation: str) -> str:
    """The name of the output and the parameter with the ARN of a function, such as "Acquire"."""
    return f"{operation}FunctionArn"


def parameter_name(stack_name: str, name: str) -> str:
    """Where in the Parameter Store a stack's service tells a name.

    Raises:
        InvalidRequest: no stack can have this name, or it is not known at synth.
    """
    if Token.is_unresolved(stack_name):
        rule = "must be known at synth: a token has no value yet"
        raise InvalidRequest(field="stack_name", rule=rule, value=stack_name)
    rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
    return stack_parameter(stack_name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What a service deploys.

    Attributes:
        service_name: what the functions call themselves in their metrics and logs.
        functions: by operation, such as "Acquire".
        reaper: None if the service has none.
        serves_every_durable_function: also those of other apps.
    """

    service_name: str
    table: dynamodb.ITable
    functions: Mapping[str, lambda_.Function]
    reaper: ExecutionReaper | None
    serves_every_durable_function: bool

    def log_group_names(self) -> list[str]:
        """The log groups of all functions."""
        return [function.log_group.log_group_name for function in self.functions.values()]

    def names(self) -> dict[str, str]:
        """Name, ARN or URL of the table, of each function and of the reaper's queues."""
        names = {
            SERVICE_NAME: self.service_name,
            TABLE_NAME: self.table.table_name,
            "LockTableArn": self.table.table_arn,
        }
        for operation, function in self.functions.items():
            names[f"{operation}FunctionName"] = function.function_name
            names[function_arn(operation)] = function.function_arn
        if self.reaper is not None:
            names["ReapQueueUrl"] = self.reaper.queue.queue_url
            names["ReapDeadLetterQueueUrl"] = self.reaper.dead_letter_queue.queue_url
            names[DEAD_LETTER_QUEUE_ARN] = self.reaper.dead_letter_queue.queue_arn
        return names


def add_outputs(service: Construct, deployed: Deployed) -> None:
    """Makes each name an output of the service's stack.

    Raises:
        InvalidRequest: the stack has such an output already, of another service for instance.
    """
    stack = Stack.of(service)
    if stack.node.try_find_child(TABLE_NAME) is not None:
        rule = f"must be called once in a stack, which has an output {TABLE_NAME} already"
        raise InvalidRequest(field="add_outputs", rule=rule, value=service.node.path)
    for name, value in deployed.names().items():
        CfnOutput(stack, name, value=value)


class SharedNames(Construct):
    """The parameters by which other stacks find the service of a stack; free of charge."""

    def __init__(self, service: Construct, deployed: Deployed) -> None:
        """Writes what `LockService.from_stack` reads.

        What the service does not have or do has no parameter, so that a stack that needs it cannot
        be deployed, instead of failing later and silently.

        Raises:
            InvalidRequest: a service of this stack is shared already, or its name is a token, as in
                a nested stack.
        """
        stack = Stack.of(service)
        parameter_name(stack.stack_name, TABLE_NAME)
        if stack.node.try_find_child(_SHARED) is not None:
            rule = "must be called once in a stack: the service is found by the stack's name"
            raise InvalidRequest(field="share", rule=rule, value=service.node.path)
        super().__init__(stack, _SHARED)
        for name, value in deployed.names().items():
            if name in {SERVICE_NAME, TABLE_NAME, DEAD_LETTER_QUEUE_ARN} or name.endswith(
                "FunctionArn"
            ):
                self._tell(name, value)
        self._tell(LOG_GROUP_NAMES, ",".join(deployed.log_group_names()))
        if deployed.reaper is not None and deployed.reaper.watches_every_machine:
            self._tell(WATCHES_EVERY_MACHINE, "true")
        if deployed.serves_every_durable_function:
            self._tell(SERVES_EVERY_DURABLE_FUNCTION, "true")

    def watches_some_machines(self) -> None:
        """Takes back that the service watches every machine."""
        self.node.try_remove_child(WATCHES_EVERY_MACHINE)

    def _tell(self, name: str, value: str) -> None:
        ssm.StringParameter(
            self,
            name,
            parameter_name=parameter_name(Stack.of(self).stack_name, name),
            string_value=value,
            description="Fairlock: read by stacks that use this lock service",
        )
