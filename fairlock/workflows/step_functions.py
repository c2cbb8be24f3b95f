"""AWS Step Functions as a workflow engine: Standard workflows, and their task tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.dynamodb.retry import RetryBudget
from fairlock.errors import LockLost
from fairlock.protocol.model import Grant, Liveness, NotHeld, Released
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.workflows.delivery import deliver
from fairlock.workflows.engine import Delivery, Execution

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

_LIVENESS: Final = {
    "RUNNING": Liveness.RUNNING,
    "PENDING_REDRIVE": Liveness.RUNNING,
    "SUCCEEDED": Liveness.OVER,
    "FAILED": Liveness.OVER,
    "TIMED_OUT": Liveness.OVER,
    "ABORTED": Liveness.OVER,
}
_GONE: Final = ("TaskDoesNotExist", "TaskTimedOut", "InvalidToken")


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
        liveness = _LIVENESS.get(answer["status"], Liveness.UNKNOWN)
        ended_at_ms = None
        if liveness is Liveness.OVER and "stopDate" in answer:
            ended_at_ms = int(answer["stopDate"].timestamp() * 1000)
        return Execution(liveness, answer.get("redriveCount", 0), ended_at_ms)

    def _deliver(self, send: Callable[[SFNClient], object]) -> Delivery:
        client = self.make_client()
        if client is None:
            return Delivery.UNKNOWN
        return deliver(lambda: send(client), gone=_GONE, retry_budget=self.retry_budget)
