"""A whole state machine with one guard, as the JSON that Step Functions takes: no app, no stack.

The guard is made by `LockGuard` around a placeholder, and the task that was given takes its place.
So its states are those of every other guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk.guard.given_work import (
    PLACEHOLDER,
    Json,
    as_machine,
    is_bare_task,
    names_in,
    put_in,
    require_evaluated,
    require_other_names,
)
from fairlock.cdk.guard.guard import LockGuard
from fairlock.cdk.guard.waiting import Waiting
from fairlock.cdk.workflow_variable import WorkflowVariable
from fairlock.errors import InvalidRequest
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS

FUNCTIONS: Final = ("AcquireFunctionArn", "HeartbeatFunctionArn", "ReleaseFunctionArn")
"""The outputs of the service's stack that a guard needs."""

WAYS_TO_WAIT: Final = {"queue": Waiting.queue(), "polling": Waiting.poll()}

_PATHS: Final = ("$.", "$$.")
_NO_ARN: Final = "arn:aws:lambda:us-east-1:000000000000:function:"
_OF_THE_MACHINE: Final = ("QueryLanguage", "TimeoutSeconds", "Version")


class FunctionsByArn(Construct):
    """All that a guard needs of a lock service: its functions, known by their ARNs alone."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire_function_arn: str,
        heartbeat_function_arn: str,
        release_function_arn: str,
    ) -> None:
        """Refers to the functions."""
        super().__init__(scope, construct_id)
        self.acquire_function = self._function("Acquire", acquire_function_arn)
        self.heartbeat_function = self._function("Heartbeat", heartbeat_function_arn)
        self.release_function = self._function("Release", release_function_arn)

    def _function(self, operation: str, arn: str) -> lambda_.IFunction:
        return lambda_.Function.from_function_attributes(
            self, operation, function_arn=arn, same_environment=True
        )


def guarded_machine(
    work: object,
    *,
    functions: Mapping[str, str],
    lock_name: str,
    limit: int = 1,
    lease_seconds: int = DEFAULT_LEASE_SECONDS,
    max_wait_seconds: int | None = None,
    waiting: Waiting | None = None,
    keep_alive_seconds: int | None = None,
    express: bool = False,
    name: str = "Guard",
    partition: str = "aws",
) -> Json:
    """A state machine that runs the work while it holds the lock.

    Args:
        work: a state that leads nowhere, or a machine, `{"StartAt": …, "States": …}`, as JSON.
        functions: the ARN for each of `FUNCTIONS`, or a text that stands for it.
        lock_name: a literal, JSONata (`{% … %}`), or a JSONPath (`$.…`).
        limit: see `LockGuard`, also for the others.
        lease_seconds: the lease.
        max_wait_seconds: the longest wait; zero skips a busy lock.
        waiting: the way to wait.
        keep_alive_seconds: how often a heartbeat beside the work renews the lease.
        express: whether it will be an Express workflow.
        name: prefixes the names of the guard's states; a state of the work is called "Work" if it
            has no name.
        partition: of AWS.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    machine = as_machine(work)
    others = names_in(machine)
    if not name:
        raise InvalidRequest(field="name", rule="must be a text that is not empty", value=name)
    stack = Stack()
    service = FunctionsByArn(
        stack,
        "Service",
        acquire_function_arn=_NO_ARN + FUNCTIONS[0],
        heartbeat_function_arn=_NO_ARN + FUNCTIONS[1],
        release_function_arn=_NO_ARN + FUNCTIONS[2],
    )
    bare = is_bare_task(machine)
    guard = LockGuard(
        stack,
        name,
        service=service,
        task=_placeholder_task(stack, service) if bare else sfn.Pass(stack, PLACEHOLDER),
        lock_name=sfn.JsonPath.string_at(lock_name) if lock_name.startswith(_PATHS) else lock_name,
        limit=limit,
        lease=Duration.seconds(lease_seconds),
        max_wait=None if max_wait_seconds is None else Duration.seconds(max_wait_seconds),
        waiting=waiting,
        keep_alive=None if keep_alive_seconds is None else Duration.seconds(keep_alive_seconds),
        express=express,
    )
    graph = stack.resolve(sfn.StateGraph(guard.start_state, name).to_graph_json())
    named = {_NO_ARN + output: arn for output, arn in functions.items()}
    made: Json = _literal(graph, named, partition)
    require_other_names(names_in(made), others)
    put_in(made, machine, bare=bare)
    variable = WorkflowVariable.of(stack, name)
    comment = f"Guarded by Fairlock. The task's fencing token: {variable.field('fencing_token')}"
    top: Json = {key: machine[key] for key in _OF_THE_MACHINE if key in machine}
    guarded = {"Comment": comment, **top, **made}
    require_evaluated(guarded, variable.name)
    return guarded


def _placeholder_task(stack: Stack, service: FunctionsByArn) -> tasks.LambdaInvoke:
    function = service.acquire_function
    return tasks.LambdaInvoke(
        stack, PLACEHOLDER, lambda_function=function, retry_on_service_exceptions=False
    )


def _literal(value: Any, named: Mapping[str, str], partition: str) -> Any:  # noqa: ANN401 - any JSON
    """The value without CloudFormation's functions, and with the ARNs that were given."""
    if isinstance(value, list):
        return [_literal(each, named, partition) for each in value]
    if not isinstance(value, dict):
        return named.get(value, value) if isinstance(value, str) else value
    if "Ref" in value:
        return partition
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return separator.join(_literal(parts, named, partition))
    return {key: _literal(each, named, partition) for key, each in value.items()}
