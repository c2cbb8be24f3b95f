"""Lambda durable functions as a workflow engine: durable executions, and their callbacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.dynamodb.retry import RetryBudget
from fairlock.protocol.model import Grant, Liveness
from fairlock.wire.answers import acquire_answer
from fairlock.workflows.delivery import deliver
from fairlock.workflows.engine import Delivery, Execution

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_LIVENESS: Final = {
    "RUNNING": Liveness.RUNNING,
    "SUCCEEDED": Liveness.OVER,
    "FAILED": Liveness.OVER,
    "TIMED_OUT": Liveness.OVER,
    "STOPPED": Liveness.OVER,
}
_GONE: Final = (
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
            gone=_GONE,
            retry_budget=self.retry_budget,
        )

    def describe(self, execution_arn: str) -> Execution:
        """Calls GetDurableExecution, one request an answer.

        An execution that does not exist (any more: Lambda forgets closed ones after the function's
        retention period) is over. Any other failure or status is `UNKNOWN`, never a guess.
        """
        client = self.make_client()
        if client is None or not hasattr(client, "get_durable_execution"):
            return Execution(Liveness.UNKNOWN)
        try:
            answer = client.get_durable_execution(DurableExecutionArn=execution_arn)
        except client.exceptions.ResourceNotFoundException:
            return Execution(Liveness.OVER)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        liveness = _LIVENESS.get(answer["Status"], Liveness.UNKNOWN)
        ended_at_ms = None
        if liveness is Liveness.OVER and "EndTimestamp" in answer:
            ended_at_ms = int(answer["EndTimestamp"].timestamp() * 1000)
        return Execution(liveness, ended_at_ms=ended_at_ms)
