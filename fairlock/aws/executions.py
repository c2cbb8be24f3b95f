"""The port for workflow engines: three calls, named by a task token or an execution's ARN.

An engine tells by the shape of the token or the ARN which service it belongs to; callers pass on
what a request named, and never look into it.

Both workflow engines behind one port: the ARN or the token says which one is meant.

AWS Step Functions as a workflow engine: Standard workflows, and their task tokens.

Lambda durable functions as a workflow engine: durable executions, and their callbacks.

Sends a message to an execution, and tells what became of it.

The AWS SDK that a function of the service runs with: Lambda's runtime brings it.

Executions are supported within the service's own account and region only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

import botocore
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.retry import RepeatedRequest, RetryBudget, error_code, may_pass
from fairlock.errors import InvalidRequest, LockLost, LockStoreMisconfigured
from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Grant, NotHeld, Released
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.wire.rules import callback_id_in, is_durable

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_stepfunctions import SFNClient


class Delivery(Enum):
    """What became of a message to an execution."""

    DELIVERED = auto()
    GONE = auto()
    """The task of this token timed out (and asks again with a new one), or is over."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Execution:
    """What an engine says about an execution.

    Attributes:
        liveness: whether it runs.
        redrives: how often it was started again after it had ended.
        ended_at_ms: when it ended, by the engine's clock; None if it runs, or nobody knows.
    """

    liveness: Liveness
    redrives: int = 0
    ended_at_ms: int | None = None


class WorkflowEngine(Protocol):
    """Runs executions that wait for locks and hold them. No method raises.

    The table alone decides who holds a lock; a message only saves an execution from asking. A lost
    one delays a waiter until its fallback poll, and the end of a heartbeat until the next one.
    """

    def wake_waiter(self, task_token: str, grant: Grant) -> Delivery:
        """Tells a waiting execution that it holds the lock now."""
        ...

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Ends a heartbeat state: its work is done and has released, or its lock is lost."""
        ...

    def describe(self, execution_arn: str) -> Execution:
        """Tells whether an execution still runs."""
        ...


class NoWorkflows:
    """The engine of a caller that cannot reach any: executions count as running."""

    def wake_waiter(self, _task_token: str, _grant: Grant) -> Delivery:
        """Tells nobody: the waiter finds out by its fallback poll."""
        return Delivery.UNKNOWN

    def end_heartbeat(self, _task_token: str, _end: Released | NotHeld | LockLost) -> Delivery:
        """Tells nobody: the next heartbeat finds out."""
        return Delivery.UNKNOWN

    def describe(self, _execution_arn: str) -> Execution:
        """Knows nothing."""
        return Execution(Liveness.UNKNOWN)


def deliver(
    send: Callable[[], object], *, gone: Collection[str], retry_budget: RetryBudget
) -> Delivery:
    """Sends a message, again while the service is too busy for it. Does not raise.

    Args:
        send: one sending.
        gone: codes of the errors that say that nobody waits for the message.
        retry_budget: how long to repeat.
    """
    message = RepeatedRequest(retry_budget)
    try:
        message.send(send)
    except (ClientError, BotoCoreError) as error:
        # A first sending whose reply was lost may have been taken: then nobody waits any more.
        is_gone = error_code(error) in gone and not message.repeated and not may_pass(error)
        return Delivery.GONE if is_gone else Delivery.UNKNOWN
    return Delivery.DELIVERED


_MACHINE_LIVENESS: Final = {
    "RUNNING": Liveness.RUNNING,
    "PENDING_REDRIVE": Liveness.RUNNING,
    "SUCCEEDED": Liveness.OVER,
    "FAILED": Liveness.OVER,
    "TIMED_OUT": Liveness.OVER,
    "ABORTED": Liveness.OVER,
}
_TASK_GONE: Final = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """A `WorkflowEngine`.

    Attributes:
        make_client: the client, made when it is first needed; None if this process can have none.
        retry_budget: how long to repeat a message that Step Functions is too busy for.
    """

    make_client: Callable[[], SFNClient | None]
    retry_budget: RetryBudget = field(default_factory=RetryBudget)

    def wake_waiter(self, task_token: str, grant: Grant) -> Delivery:
        """Completes the waiting task with the answer that acquire would have given."""
        output = json.dumps(acquire_answer(grant), ensure_ascii=False)
        return self._deliver(
            lambda client: client.send_task_success(taskToken=task_token, output=output)
        )

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Lets the heartbeat's task succeed with the release's answer, or fail with `LockLost`.

        The state believes only an answer that names its own lock and owner.
        """
        if not isinstance(end, LockLost):
            output = json.dumps(release_answer(end), ensure_ascii=False)
            return self._deliver(
                lambda client: client.send_task_success(taskToken=task_token, output=output)
            )
        error, cause = type(end).__name__, str(end)
        return self._deliver(
            lambda client: client.send_task_failure(taskToken=task_token, error=error, cause=cause)
        )

    def describe(self, execution_arn: str) -> Execution:
        """Calls DescribeExecution, one request an answer.

        An execution that does not exist (any more: Step Functions forgets closed ones after 90
        days) is over. Any other failure or status is `UNKNOWN`, never a guess: a throttle must not
        cost a holder its lock.
        """
        client = self.make_client()
        if client is None:
            return Execution(Liveness.UNKNOWN)
        try:
            answer = client.describe_execution(
                executionArn=execution_arn, includedData="METADATA_ONLY"
            )
        except client.exceptions.ExecutionDoesNotExist:
            return Execution(Liveness.OVER)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        liveness = _MACHINE_LIVENESS.get(answer["status"], Liveness.UNKNOWN)
        ended_at_ms = None
        if liveness is Liveness.OVER and "stopDate" in answer:
            ended_at_ms = int(answer["stopDate"].timestamp() * 1000)
        return Execution(liveness, answer.get("redriveCount", 0), ended_at_ms)

    def _deliver(self, send: Callable[[SFNClient], object]) -> Delivery:
        client = self.make_client()
        if client is None:
            return Delivery.UNKNOWN
        return deliver(lambda: send(client), gone=_TASK_GONE, retry_budget=self.retry_budget)


class _WithoutData(TypedDict, total=False):
    IncludeExecutionData: bool


_FUNCTION_LIVENESS: Final = {
    "RUNNING": Liveness.RUNNING,
    "SUCCEEDED": Liveness.OVER,
    "FAILED": Liveness.OVER,
    "TIMED_OUT": Liveness.OVER,
    "STOPPED": Liveness.OVER,
}
_CALLBACK_GONE: Final = (
    "CallbackTimeoutException",
    "ResourceNotFoundException",
    "InvalidParameterValueException",
)


@dataclass(frozen=True, slots=True)
class DurableFunctions:
    """The part of a `WorkflowEngine` that durable executions need. No method raises.

    An AWS SDK that is older than durable functions (botocore before 1.42) knows none of the calls:
    then every answer is unknown.

    Attributes:
        make_client: the client, made when it is first needed; None if this process can have none.
        retry_budget: how long to repeat a message that Lambda is too busy for.
    """

    make_client: Callable[[], LambdaClient | None]
    retry_budget: RetryBudget = field(default_factory=RetryBudget)

    def wake_waiter(self, callback_id: str, grant: Grant) -> Delivery:
        """Completes the callback with the answer that acquire would have given."""
        client = self.make_client()
        if client is None or not hasattr(client, "send_durable_execution_callback_success"):
            return Delivery.UNKNOWN
        result = json.dumps(acquire_answer(grant), ensure_ascii=False).encode()
        return deliver(
            lambda: client.send_durable_execution_callback_success(
                CallbackId=callback_id, Result=result
            ),
            gone=_CALLBACK_GONE,
            retry_budget=self.retry_budget,
        )

    def describe(self, execution_arn: str) -> Execution:
        """Calls GetDurableExecution, one request an answer.

        It asks for no data: those Lambda would decrypt with the key of the function, if it has one
        of its own, which this caller may not use; then it would learn nothing at all. An SDK that
        cannot leave the data out reads them. An execution that does not exist (any more: Lambda forgets closed ones after the function's
        retention period) is over. Any other failure or status is `UNKNOWN`, never a guess.
        """
        client = self.make_client()
        if client is None or not hasattr(client, "get_durable_execution"):
            return Execution(Liveness.UNKNOWN)
        try:
            answer = client.get_durable_execution(
                DurableExecutionArn=execution_arn, **_without_data(client)
            )
        except client.exceptions.ResourceNotFoundException:
            return Execution(Liveness.OVER)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        liveness = _FUNCTION_LIVENESS.get(answer["Status"], Liveness.UNKNOWN)
        ended_at_ms = None
        if liveness is Liveness.OVER and "EndTimestamp" in answer:
            ended_at_ms = int(answer["EndTimestamp"].timestamp() * 1000)
        return Execution(liveness, ended_at_ms=ended_at_ms)


def _without_data(client: LambdaClient) -> _WithoutData:
    """Sent explicitly: AWS's reference and guide disagree about the default."""
    known = client.meta.service_model.operation_model("GetDurableExecution").input_shape
    return {"IncludeExecutionData": False} if "IncludeExecutionData" in known.members else {}


@dataclass(frozen=True, slots=True)
class WorkflowEngines:
    """A `WorkflowEngine` for Standard workflows and for durable functions."""

    step_functions: StepFunctions
    durable_functions: DurableFunctions

    def wake_waiter(self, task_token: str, grant: Grant) -> Delivery:
        """Tells a waiting execution that it holds the lock now."""
        callback_id = callback_id_in(task_token)
        if callback_id is None:
            return self.step_functions.wake_waiter(task_token, grant)
        return self.durable_functions.wake_waiter(callback_id, grant)

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Ends a heartbeat state; only Standard workflows have them."""
        return self.step_functions.end_heartbeat(task_token, end)

    def describe(self, execution_arn: str) -> Execution:
        """Tells whether an execution still runs."""
        if is_durable(execution_arn):
            return self.durable_functions.describe(execution_arn)
        return self.step_functions.describe(execution_arn)


_KNOWS_DURABLE_FUNCTIONS: Final = (1, 42)
"""botocore 1.41.6 has none of the calls, 1.42.1 has all; there is no 1.42.0."""


def require_durable_calls(execution_arn: str | None) -> None:
    """Refuses a durable execution where the AWS SDK cannot ask for it.

    Nobody could wake it, and nobody could tell that it has died: its lock would stay taken.

    Args:
        execution_arn: the execution that the request names; None if it names none.

    Raises:
        LockStoreMisconfigured: names the version that is there, and the one that is needed.
    """
    if execution_arn is None or not is_durable(execution_arn):
        return
    if tuple(int(part) for part in botocore.__version__.split(".")[:2]) < _KNOWS_DURABLE_FUNCTIONS:
        raise LockStoreMisconfigured(
            f"the service cannot lock for durable executions: its AWS SDK, botocore "
            f"{botocore.__version__}, does not know them; it needs 1.42.1, so let its functions "
            f"use a newer version of Lambda's runtime"
        )


def require_same_account(execution_arn: str | None, *, function_arn: str) -> None:
    """Refuses an execution of another account or region.

    The service gets no events of it and may not describe it: its lease would be extended for ever.

    Args:
        execution_arn: the execution that the request names; None if it names none.
        function_arn: the function that serves the request.

    Raises:
        InvalidRequest: names the account and region that the execution must be of.
    """
    if execution_arn is None or _place(execution_arn) == _place(function_arn):
        return
    partition, region, account = _place(function_arn)
    rule = f"must be an execution of this service's account and region ({account}, {region})"
    if _place(execution_arn)[0] != partition:
        rule += f", in partition {partition}"
    raise InvalidRequest(field="execution_arn", rule=rule, value=execution_arn)


def _place(arn: str) -> tuple[str, str, str]:
    """Partition, region and account of `arn:partition:service:region:account:…`."""
    _, partition, _, region, account, *_ = arn.split(":")
    return partition, region, account
