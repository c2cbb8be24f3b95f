"""What the handlers share: the lock table, the AWS clients, what they refuse, metrics and logs.

The network library is loaded, and the clients are made, at import, which Lambda runs with the CPU
of a large function. A log line names an acquisition by its lock and its fencing token. The owner_id
is the proof of ownership and is in no line, nor is a hash of it: a reader who can guess an id could
find it by its hash. The request id, which CloudTrail knows with the principal, says who called.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import botocore
from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session, get_session

from fairlock import errors
from fairlock.aws.executions import DurableFunctions, StepFunctions, WorkflowEngines, no_account
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import OWN_REQUESTS_CONFIG, RetryBudget
from fairlock.clock import AwsClock, BootClock
from fairlock.names import (
    MEETS_DURABLE_VARIABLE,
    NAMESPACE,
    SERVICE_NAME_VARIABLE,
    TABLE_NAME_VARIABLE,
    LogMessage,
    MetricName,
)
from fairlock.protocol.model import AcquireRequest, Grant, ReleaseRequest
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.store import context
from fairlock.wire.answers import invalid_request_text
from fairlock.wire.rules import is_durable, place_in

if TYPE_CHECKING:
    from fairlock.aws.executions import Account


class Invocation(Protocol):
    """What the handlers use of the context that Lambda passes to them."""

    @property
    def invoked_function_arn(self) -> str:
        """The function that serves the request."""

    def get_remaining_time_in_millis(self) -> int:
        """Until Lambda ends the function."""


Handler = Callable[[dict[str, Any], Invocation], dict[str, Any]]
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


def require_durable_calls(execution_arn: str | None) -> None:
    """Refuses a durable execution where the AWS SDK cannot ask for it: no one could wake it."""
    if execution_arn is None or not is_durable(execution_arn):
        return
    if tuple(int(part) for part in botocore.__version__.split(".")[:2]) < _KNOWS_DURABLE_FUNCTIONS:
        raise errors.LockStoreMisconfigured(
            f"the service cannot lock for durable executions: its AWS SDK, botocore "
            f"{botocore.__version__}, does not know them; it needs 1.42.1, so let its functions "
            f"use a newer version of Lambda's runtime"
        )


def require_same_account(execution_arn: str | None, *, function_arn: str) -> None:
    """Refuses an execution of another place, which the service cannot ask about."""
    if execution_arn is None or place_in(execution_arn) == place_in(function_arn):
        return
    partition, region, account = place_in(function_arn)
    rule = f"must be an execution of this service's account and region ({account}, {region})"
    if place_in(execution_arn)[0] != partition:
        rule += f", in partition {partition}"
    raise errors.InvalidRequest(field="execution_arn", rule=rule, value=execution_arn)


def lock_context(invocation: Invocation) -> context.LockContext:
    """The table named by FAIRLOCK_TABLE_NAME and its services, until the invocation's deadline."""
    remaining_seconds = invocation.get_remaining_time_in_millis() / 1000
    deadline = _CLOCK.monotonic() + remaining_seconds - _SECONDS_TO_ANSWER
    retry_budget = RetryBudget(deadline=deadline, clock=_CLOCK)
    table_name = os.environ[TABLE_NAME_VARIABLE]
    table = LockTable(
        _client("dynamodb"), table_name, retry_budget=retry_budget, aws_clock=aws_clock
    )
    return context.LockContext(
        table=table,
        workflows=_workflows(lambda: place_in(invocation.invoked_function_arn)[2]),
        observe=observe_event,
        retry_budget=retry_budget,
    )


def send_message(queue_url: str, body: str, delay_seconds: int) -> None:
    """Sends a message that arrives after a delay."""
    _client("sqs").send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=delay_seconds)


def hide_message(queue_url: str, receipt_handle: str, seconds: int) -> None:
    """Lets a message come again after so many seconds, or else after the visibility timeout."""
    with suppress(ClientError, BotoCoreError):
        _client("sqs").change_message_visibility(
            QueueUrl=queue_url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
        )


def put_events(entries: list[dict[str, str]]) -> None:
    """Sends events to the account's default bus; raises if EventBridge did not take all of them."""
    answer = _client("events").put_events(Entries=entries)
    if answer["FailedEntryCount"]:
        codes = {each["ErrorCode"] for each in answer["Entries"] if "ErrorCode" in each}
        message = f"EventBridge refused {answer['FailedEntryCount']} events: {sorted(codes)}"
        raise RuntimeError(message)


def make_clients(*services: Service) -> None:
    """Makes clients before the first invocation, if Lambda imports the handler.

    Elsewhere a client may need a region that is not set. Lambda's own client takes as long as all
    others, so it is made only where durable functions may be met.
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
    """Makes clients as boto3 does, without its import, which takes longer."""
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


class _Provider(AmazonCloudWatchEMFProvider):
    """Publishes metrics if there are any; Powertools would warn of none, and not in JSON."""

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:  # noqa: FBT001, FBT002 - Powertools' signature
        if self.metric_set:
            super().flush_metrics(raise_on_empty_metrics)


LONGEST_TOLD_WAIT_MS: Final = 7 * 24 * 3_600_000
"""More than the longest wait of a guard that polls, and of one whose queue is full."""

_BUSY: Final = {RefusalReason.HELD, RefusalReason.QUEUE_FULL}

_SERVICE: Final = os.environ.get(SERVICE_NAME_VARIABLE, "fairlock")

logger: Final = Logger(service=_SERVICE, utc=True)
metrics: Final = Metrics(provider=_Provider(namespace=NAMESPACE, service=_SERVICE))


def entry_point(*services: Service, answers: bool = True) -> Callable[[Handler], Handler]:
    """Makes a function a handler with these clients, and with logs, metrics and readable faults.

    A caller that it `answers` reads what was wrong as JSON, in the last line of the error.
    """
    make_clients(*services)

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        def reporting(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
            try:
                return handler(event, context)
            except errors.InvalidRequest as refused:
                raise InvalidRequest(refused) from refused

        logged: Handler = logger.inject_lambda_context(
            metrics.log_metrics(reporting if answers else handler)
        )
        return logged

    return decorate


def count(name: MetricName, number: int = 1) -> None:
    """Adds to a count, unless there is nothing to add."""
    if number:
        metrics.add_metric(name=name.value, unit=MetricUnit.Count, value=number)


def _measure_ms(name: MetricName, milliseconds: int) -> None:
    metrics.add_metric(name=name.value, unit=MetricUnit.Milliseconds, value=milliseconds)


def measure_of_watched(name: MetricName, milliseconds: int, *, locks: str) -> None:
    """Publishes a time with one dimension more: the name of the watched locks."""
    dimensions = {"service": _SERVICE, "locks": locks}
    unit = MetricUnit.Milliseconds
    with single_metric(
        name.value, unit, milliseconds, namespace=NAMESPACE, default_dimensions=dimensions
    ):
        """Printed at the end of the block."""


def caller_fields(
    lock_name: str, *, owner_name: str = "", execution_arn: str | None = None
) -> dict[str, object]:
    """The fields by which a log line names a lock and, as far as it is known, who asks for it."""
    known = {"owner_name": owner_name, "execution_arn": execution_arn}
    return {"lock_name": lock_name, **{name: value for name, value in known.items() if value}}


def request_fields(request: AcquireRequest) -> dict[str, object]:
    """The same, of a request that tells who asks."""
    return caller_fields(
        request.lock_name, owner_name=request.owner_name, execution_arn=request.execution_arn
    )


def _measure_current_wait(
    request: AcquireRequest, answer: Queued | Refusal, *, now_ms: int
) -> dict[str, int]:
    """Measures how long the caller has waited so far; returns it as the field of a log line.

    A caller that polls says it itself: what none can have waited is not measured.
    """
    if isinstance(answer, Queued):
        waited_ms = max(0, now_ms - answer.entered_at_ms)
    elif request.waiting_since_ms is not None and answer.reason in _BUSY:
        waited_ms = max(0, now_ms - request.waiting_since_ms)
        if waited_ms > LONGEST_TOLD_WAIT_MS:
            return {}
    else:
        return {}
    _measure_ms(MetricName.CURRENT_WAIT, waited_ms)
    return {"waited_ms": waited_ms}


def observe_acquire(
    request: AcquireRequest, answer: Grant | Queued | Refusal, *, now_ms: int
) -> None:
    """Counts and logs the answer to an acquire; `now_ms` is the wall time of the answer."""
    caller = request_fields(request)
    waits: dict[str, int] = {}
    if not isinstance(answer, Grant):
        waits = _measure_current_wait(request, answer, now_ms=now_ms)
    match answer:
        case Grant():
            count(MetricName.GRANTED, 0 if answer.repeated else 1)
            count(MetricName.TAKEN_OVER, answer.taken_over)
            logger.info(LogMessage.GRANTED, extra={**caller, "fencing_token": answer.fencing_token})
        case Queued():
            count(MetricName.QUEUED)
            if answer.position is not None:  # A caller that asks again does not get it.
                count(MetricName.QUEUE_LENGTH, answer.position)
            logger.info(LogMessage.QUEUED, extra={**caller, **waits, "position": answer.position})
        case Refusal():
            count(MetricName.BUSY, int(answer.reason in _BUSY))
            count(MetricName.SUPERSEDED, int(answer.reason is RefusalReason.SUPERSEDED))
            logger.info(
                LogMessage.REFUSED, extra={**caller, **waits, "reason": answer.reason.value}
            )


def observe_pace(answer: dict[str, Any]) -> None:
    """Counts and logs the answer to a reservation; a repeat that finds its slot counts again."""
    if answer["reserved"]:
        _measure_ms(MetricName.PACE_WAIT, 1000 * answer["wait_seconds"])
        logger.info(LogMessage.RESERVED, extra=answer)
    else:
        count(MetricName.SLOT_TOO_LATE)
        logger.info(LogMessage.TOO_LATE, extra=answer)


def observe_heartbeat(answer: Grant | NotHeld) -> None:
    """Counts and logs the answer to a heartbeat."""
    lock = caller_fields(answer.lock_name)
    if isinstance(answer, Grant):
        logger.debug(LogMessage.RENEWED, extra={**lock, "fencing_token": answer.fencing_token})
    else:
        count(MetricName.LOST)
        logger.warning(LogMessage.NOT_HELD, extra=lock)


def observe_release(request: ReleaseRequest, answer: Released | NotHeld) -> None:
    """Counts and logs the answer to a release. A waiter that gives up has lost nothing."""
    caller = caller_fields(request.lock_name, execution_arn=request.execution_arn)
    if isinstance(answer, NotHeld):
        count(MetricName.LOST, 0 if request.waits else 1)
        logger.warning(LogMessage.NOT_HELD, extra=caller)
        return
    count(MetricName.LEFT_QUEUE, int(answer.left_queue))
    if answer.held_ms is not None:
        count(MetricName.RELEASED)
        _measure_ms(MetricName.HELD_TIME, answer.held_ms)
    held = {"fencing_token": answer.fencing_token, "held_ms": answer.held_ms}
    logger.info(LogMessage.RELEASED, extra={**caller, **held})


def observe_event(event: context.Event) -> None:
    """Counts and logs what happened besides the answer."""
    if isinstance(event, context.HandedOver):
        count(MetricName.GRANTED)
        count(MetricName.HANDED_OVER)
        _measure_ms(MetricName.WAIT_TIME, event.waited_ms)
        _measure_ms(MetricName.HAND_OFF_LATENCY, event.latency_ms)
        logger.info(LogMessage.HANDED_OVER, extra=asdict(event))
        return
    if isinstance(event, context.WaitersSuperseded):
        count(MetricName.SUPERSEDED, event.told)  # The others are counted when they ask.
        logger.info(LogMessage.SUPERSEDED, extra=asdict(event))
        return
    metric, message = _EVENTS[type(event)]
    count(metric, event.holders if isinstance(event, context.Evicted) else 1)
    log = logger.info if isinstance(event, context.Extended) else logger.warning
    log(message, extra=asdict(event))


_EVENTS: Final[dict[type[context.Event], tuple[MetricName, LogMessage]]] = {
    context.Evicted: (MetricName.TAKEN_OVER, LogMessage.EVICTED),
    context.ReleasedByForce: (MetricName.FORCED_RELEASE, LogMessage.RELEASED_BY_FORCE),
    context.CeilingChanged: (MetricName.CEILING_CHANGED, LogMessage.CEILING_CHANGED),
    context.MixedLimits: (MetricName.MIXED_LIMITS, LogMessage.MIXED_LIMITS),
    context.Extended: (MetricName.EXTENDED, LogMessage.EXTENDED),
    context.LivenessUnknown: (MetricName.LIVENESS_UNKNOWN, LogMessage.LIVENESS_UNKNOWN),
    context.PushUnknown: (MetricName.PUSH_UNKNOWN, LogMessage.PUSH_UNKNOWN),
    context.ClaimNotRemoved: (MetricName.CLAIM_NOT_REMOVED, LogMessage.CLAIM_NOT_REMOVED),
}
