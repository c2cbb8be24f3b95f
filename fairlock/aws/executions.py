"""Workflow engines: wake an execution that waits for a lock, and ask whether one still runs.

A task token and an execution's ARN tell by their shape which engine they belong to; callers pass on
what a request named, and never look into it.

A message only saves an execution from asking, so no method raises: a message that is lost delays a
waiter until its fallback poll.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.retry import RepeatedRequest, RetryBudget, error_code, may_pass
from fairlock.errors import LockLost
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Refusal, Released
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.wire.rules import callback_id_in, is_durable, place_in

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_stepfunctions import SFNClient


class Delivery(Enum):
    """What became of a message to an execution."""

    DELIVERED = auto()
    GONE = auto()
    """The task of this token timed out (and asks again with a new one), or is over."""
    UNKNOWN = auto()


class Liveness(StrEnum):
    """What is known about an execution."""

    RUNNING = "RUNNING"
    OVER = "OVER"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Execution:
    """What an engine says about an execution; `ended_at_ms` by its own clock, if it tells."""

    liveness: Liveness
    redrives: int = 0
    ended_at_ms: int | None = None


class WorkflowEngine(Protocol):
    """Runs executions that wait for locks and hold them. No method raises.

    What an engine does not implement is unknown: executions count as running, and find out by their
    next poll or heartbeat.
    """

    def wake_waiter(self, _task_token: str, _answer: Grant | Refusal, /) -> Delivery:
        """Tells a waiting execution that it holds the lock now, or never will."""
        return Delivery.UNKNOWN

    def end_heartbeat(self, _task_token: str, _end: Released | NotHeld | LockLost, /) -> Delivery:
        """Ends a heartbeat state: its work is done and has released, or its lock is lost."""
        return Delivery.UNKNOWN

    def describe(self, _execution_arn: str, /) -> Execution:
        """Tells whether an execution still runs."""
        return Execution(Liveness.UNKNOWN)


class NoWorkflows(WorkflowEngine):
    """The engine of a caller that cannot reach any."""


def _undelivered(error: Exception, message: RepeatedRequest, gone: Collection[str]) -> Delivery:
    """What a failure says of a message; by codes in `gone`, no execution waits for it."""
    if not isinstance(error, ClientError | BotoCoreError):
        raise error
    # A first sending whose reply was lost may have been taken: then no task waits any more.
    is_gone = error_code(error) in gone and not message.repeated and not may_pass(error)
    return Delivery.GONE if is_gone else Delivery.UNKNOWN


Account = Callable[[], str | None]
"""The account that a client asks; None if it is not known."""


def no_account() -> None:
    """The account of a client whose credentials do not name it."""


def _forgotten(client: object, execution_arn: str, account: Account) -> Execution:
    """What it means that an engine knows no such execution: over only where it was asked about."""
    asked_region = getattr(getattr(client, "meta", None), "region_name", None)
    _, region, of_account = place_in(execution_arn)
    is_asked = region == asked_region and of_account == account()
    return Execution(Liveness.OVER if is_asked else Liveness.UNKNOWN)


_LIVENESS: Final = {
    "RUNNING": Liveness.RUNNING,
    "PENDING_REDRIVE": Liveness.RUNNING,
    # A paused durable execution goes on where it was when it is resumed, and until then still takes
    # the results of its callbacks: a paused waiter may be handed the lock.
    "PAUSING": Liveness.RUNNING,
    "PAUSED": Liveness.RUNNING,
    "DELETING": Liveness.OVER,
    "SUCCEEDED": Liveness.OVER,
    "FAILED": Liveness.OVER,
    "TIMED_OUT": Liveness.OVER,
    "ABORTED": Liveness.OVER,  # as Step Functions says
    "STOPPED": Liveness.OVER,  # as Lambda says
}


def _execution(status: str, ended: datetime | None, redrives: int = 0) -> Execution:
    """What a status means. A new one is unknown: a guess could cost a holder its lock."""
    liveness = _LIVENESS.get(status, Liveness.UNKNOWN)
    if ended is None or liveness is not Liveness.OVER:
        return Execution(liveness, redrives)
    return Execution(liveness, redrives, int(ended.timestamp() * 1000))


_task_undelivered: Final = partial(
    _undelivered, gone=("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")
)


@dataclass(frozen=True, slots=True)
class StepFunctions:
    """The `WorkflowEngine` of Standard workflows."""

    make_client: Callable[[], SFNClient | None]
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    account: Account = no_account

    def wake_waiter(self, task_token: str, answer: Grant | Refusal) -> Delivery:
        """Completes the waiting task with the answer that acquire would have given."""
        client = self.make_client()
        if client is None:
            return Delivery.UNKNOWN
        output = json.dumps(acquire_answer(answer), ensure_ascii=False)
        message = RepeatedRequest(self.retry_budget, answer_in=_task_undelivered)
        sent = message.send(client.send_task_success, taskToken=task_token, output=output)
        return sent if isinstance(sent, Delivery) else Delivery.DELIVERED

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """Lets the heartbeat's task succeed with the release's answer, or fail with `LockLost`.

        The state believes only an answer that names its own lock and owner.
        """
        client = self.make_client()
        if client is None:
            return Delivery.UNKNOWN
        sent: object
        message = RepeatedRequest(self.retry_budget, answer_in=_task_undelivered)
        if isinstance(end, LockLost):
            error, cause = type(end).__name__, str(end)
            sent = message.send(
                client.send_task_failure, taskToken=task_token, error=error, cause=cause
            )
        else:
            output = json.dumps(release_answer(end), ensure_ascii=False)
            sent = message.send(client.send_task_success, taskToken=task_token, output=output)
        return sent if isinstance(sent, Delivery) else Delivery.DELIVERED

    def describe(self, execution_arn: str) -> Execution:
        """Calls DescribeExecution, one request an answer.

        An execution that does not exist (Step Functions forgets closed ones after 90 days) is over,
        if it is one of the region and account that were asked. Any other failure is `UNKNOWN`.
        """
        client = self.make_client()
        if client is None:
            return Execution(Liveness.UNKNOWN)
        try:
            answer = client.describe_execution(
                executionArn=execution_arn, includedData="METADATA_ONLY"
            )
        except client.exceptions.ExecutionDoesNotExist:
            return _forgotten(client, execution_arn, self.account)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        ended, redrives = answer.get("stopDate"), answer.get("redriveCount", 0)
        return _execution(answer["status"], ended, redrives)


_callback_undelivered: Final = partial(
    _undelivered,
    gone=(
        "CallbackTimeoutException",
        "ResourceNotFoundException",
        "InvalidParameterValueException",
    ),
)


@dataclass(frozen=True, slots=True)
class DurableFunctions:
    """The part of a `WorkflowEngine` that durable executions need.

    An AWS SDK without durable functions (botocore before 1.42) answers nothing but unknown.
    """

    make_client: Callable[[], LambdaClient | None]
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    account: Account = no_account

    def wake_waiter(self, callback_id: str, answer: Grant | Refusal) -> Delivery:
        """Completes the callback with the answer that acquire would have given."""
        client = self.make_client()
        if client is None or not hasattr(client, "send_durable_execution_callback_success"):
            return Delivery.UNKNOWN
        send = client.send_durable_execution_callback_success
        result = json.dumps(acquire_answer(answer), ensure_ascii=False).encode()
        message = RepeatedRequest(self.retry_budget, answer_in=_callback_undelivered)
        sent: object = message.send(send, CallbackId=callback_id, Result=result)
        return sent if isinstance(sent, Delivery) else Delivery.DELIVERED

    def describe(self, execution_arn: str) -> Execution:
        """Calls GetDurableExecution, as `StepFunctions.describe` does.

        It asks for no data, because to decrypt them may need a permission that the caller has not.
        """
        client = self.make_client()
        if client is None or not hasattr(client, "get_durable_execution"):
            return Execution(Liveness.UNKNOWN)
        try:
            answer = client.get_durable_execution(
                DurableExecutionArn=execution_arn, **_without_data(client)
            )
        except client.exceptions.ResourceNotFoundException:
            return _forgotten(client, execution_arn, self.account)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        return _execution(answer["Status"], answer.get("EndTimestamp"))


def _without_data(client: LambdaClient) -> dict[str, Any]:
    """Sent explicitly: AWS's reference and guide disagree about the default."""
    known = client.meta.service_model.operation_model("GetDurableExecution").input_shape
    fields = () if known is None else known.members
    return {"IncludeExecutionData": False} if "IncludeExecutionData" in fields else {}


@dataclass(frozen=True, slots=True)
class WorkflowEngines:
    """A `WorkflowEngine` for Standard workflows and for durable executions of Lambda."""

    step_functions: StepFunctions
    durable_functions: DurableFunctions

    def wake_waiter(self, task_token: str, answer: Grant | Refusal) -> Delivery:
        """See `WorkflowEngine`."""
        callback_id = callback_id_in(task_token)
        if callback_id is None:
            return self.step_functions.wake_waiter(task_token, answer)
        return self.durable_functions.wake_waiter(callback_id, answer)

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        """See `WorkflowEngine`; only Standard workflows have heartbeat states."""
        return self.step_functions.end_heartbeat(task_token, end)

    def describe(self, execution_arn: str) -> Execution:
        """See `WorkflowEngine`."""
        if is_durable(execution_arn):
            return self.durable_functions.describe(execution_arn)
        return self.step_functions.describe(execution_arn)
