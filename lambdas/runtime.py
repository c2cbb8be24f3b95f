"""What the handlers need of their environment: the store and the AWS clients.

Importing this touches no network: clients are made when they are first needed.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from lambdas.telemetry import observe_event
from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget
from leasehold.store.context import LockContext
from leasehold.store.lock_store import LockStore
from leasehold.workflows.step_functions import StepFunctions

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_SECONDS_TO_ANSWER: Final = 1.0
"""The rest of the invocation when the retry budget ends, so that the caller gets a typed error."""


def lock_store(invocation: LambdaContext) -> LockStore:
    """The store over the table named by LEASEHOLD_TABLE_NAME, with the invocation's deadline."""
    remaining_seconds = invocation.get_remaining_time_in_millis() / 1000
    retry_budget = RetryBudget(deadline=time.monotonic() + remaining_seconds - _SECONDS_TO_ANSWER)
    table_name = os.environ["LEASEHOLD_TABLE_NAME"]
    context = LockContext(
        table=LockTable(_client("dynamodb"), table_name, retry_budget=retry_budget),
        workflows=workflows,
        observe=observe_event,
        retry_budget=retry_budget,
    )
    return LockStore(context)


def send_message(queue_url: str, body: str, delay_seconds: int) -> None:
    """Sends a message that arrives after a delay."""
    _client("sqs").send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=delay_seconds)


@cache
def _client(service: Literal["dynamodb", "stepfunctions", "sqs"]) -> Any:  # noqa: ANN401 - one client or the other
    import boto3  # noqa: PLC0415 - importing a handler loads no network library

    from leasehold.dynamodb.client_config import CLIENT_CONFIG  # noqa: PLC0415 - same

    return boto3.client(service, config=CLIENT_CONFIG)


workflows: Final = StepFunctions(lambda: _client("stepfunctions"))
