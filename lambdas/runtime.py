"""What the handlers share: the lock table, the AWS clients, and what a function refuses to serve.

Lambda runs the import of a handler with the CPU of a large function, and the first invocation with
that of the function's own memory. So the network library is loaded, and the clients are made, at
import. That touches no network.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, Literal

import botocore
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session, get_session

from fairlock import errors
from fairlock.aws.executions import (
    DurableFunctions,
    StepFunctions,
    WorkflowEngines,
    no_account,
)
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import OWN_REQUESTS_CONFIG, RetryBudget
from fairlock.clock import AwsClock, BootClock
from fairlock.names import MEETS_DURABLE_VARIABLE, TABLE_NAME_VARIABLE
from fairlock.store.context import LockContext
from fairlock.wire.answers import invalid_request_text
from fairlock.wire.rules import is_durable, place_in
from lambdas.telemetry import observe_event

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from fairlock.aws.executions import Account

Handler = Callable[[dict[str, Any], "LambdaContext"], dict[str, Any]]
Service = Literal["dynamodb", "events", "stepfunctions", "lambda", "sqs"]

_SECONDS_TO_ANSWER: Final = 1.0
"""The rest of the invocation when the retry budget ends, so that the caller gets a typed error."""


_KNOWS_DURABLE_FUNCTIONS: Final = (1, 42)
"""botocore 1.41.6 has none of the calls, 1.42.1 has all; there is no 1.42.0."""


class InvalidRequest(errors.InvalidRequest):
    """The same error under the same name, which Lambda reports with field, rule and value."""

    def __init__(self, refused: errors.InvalidRequest) -> None:
        self.field, self.rule, self.value = refused.field, refused.rule, refused.value
        self.args = (invalid_request_text(refused),)


def reports_faults(handler: Handler) -> Handler:
    """Lets callers read what was wrong with a request as JSON, in the last line of the error."""

    @wraps(handler)
    def reporting(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        try:
            return handler(event, context)
        except errors.InvalidRequest as refused:
            raise InvalidRequest(refused) from refused

    return reporting


def require_durable_calls(execution_arn: str | None) -> None:
    """Refuses a durable execution where the AWS SDK cannot ask for it.

    No one could wake it, or tell that it has died: its lock would stay taken.

    Args:
        execution_arn: the execution that the request names; None if it names none.

    Raises:
        LockStoreMisconfigured: names the version that is there, and the one that is needed.
    """
    if execution_arn is None or not is_durable(execution_arn):
        return
    if tuple(int(part) for part in botocore.__version__.split(".")[:2]) < _KNOWS_DURABLE_FUNCTIONS:
        raise errors.LockStoreMisconfigured(
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
    if execution_arn is None or place_in(execution_arn) == place_in(function_arn):
        return
    partition, region, account = place_in(function_arn)
    rule = f"must be an execution of this service's account and region ({account}, {region})"
    if place_in(execution_arn)[0] != partition:
        rule += f", in partition {partition}"
    raise errors.InvalidRequest(field="execution_arn", rule=rule, value=execution_arn)


def lock_context(invocation: LambdaContext) -> LockContext:
    """The table named by FAIRLOCK_TABLE_NAME and its services, until the invocation's deadline."""
    remaining_seconds = invocation.get_remaining_time_in_millis() / 1000
    deadline = _CLOCK.monotonic() + remaining_seconds - _SECONDS_TO_ANSWER
    retry_budget = RetryBudget(deadline=deadline, clock=_CLOCK)
    table_name = os.environ[TABLE_NAME_VARIABLE]
    table = LockTable(
        _client("dynamodb"), table_name, retry_budget=retry_budget, aws_clock=aws_clock
    )
    return LockContext(
        table=table,
        workflows=_workflows(lambda: place_in(invocation.invoked_function_arn)[2]),
        observe=observe_event,
        retry_budget=retry_budget,
    )


def send_message(queue_url: str, body: str, delay_seconds: int) -> None:
    """Sends a message that arrives after a delay."""
    _client("sqs").send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=delay_seconds)


def hide_message(queue_url: str, receipt_handle: str, seconds: int) -> None:
    """Lets a message that was received come again after so many seconds.

    If SQS does not do it, the message comes again after the queue's visibility timeout.
    """
    with suppress(ClientError, BotoCoreError):
        _client("sqs").change_message_visibility(
            QueueUrl=queue_url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
        )


def put_events(entries: list[dict[str, str]]) -> None:
    """Sends events to the account's default bus of EventBridge.

    Raises:
        RuntimeError: EventBridge did not take all of them.
    """
    answer = _client("events").put_events(Entries=entries)
    if answer["FailedEntryCount"]:
        codes = {each["ErrorCode"] for each in answer["Entries"] if "ErrorCode" in each}
        message = f"EventBridge refused {answer['FailedEntryCount']} events: {sorted(codes)}"
        raise RuntimeError(message)


def make_clients(*services: Service) -> None:
    """Makes clients before the first invocation; called when a handler is imported by Lambda.

    Elsewhere it does nothing: there a client may need a region that is not set. Lambda's own client
    takes as long as all others, so it is made only where durable functions may be met.
    """
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        durable: tuple[Service, ...] = ("lambda",) if MEETS_DURABLE_VARIABLE in os.environ else ()
        for service in (*services, *durable):
            _client(service)
        if not gc.isenabled():  # See `lambdas/__init__.py`.
            gc.freeze()  # All that stays. Later collections leave it out.
            gc.enable()


@cache
def _session() -> Session:
    """Makes the clients that boto3 makes, but for its version in their user agent.

    The import of boto3 itself takes longer, for resources and transfers to S3 that no handler uses.
    """
    return get_session()


@cache
def _client(service: Service) -> Any:  # noqa: ANN401 - one client or the other
    return _session().create_client(service, config=OWN_REQUESTS_CONFIG)


_CLOCK: Final = BootClock()
aws_clock: Final = AwsClock(_CLOCK)
"""It outlives the invocation: only the first write of an environment goes by the wall clock."""


def _workflows(account: Account) -> WorkflowEngines:
    return WorkflowEngines(
        StepFunctions(lambda: _client("stepfunctions"), account=account),
        DurableFunctions(lambda: _client("lambda"), account=account),
    )


workflows: Final = _workflows(no_account)
"""For messages only, which name no account."""
