"""Metrics and logs of the handlers: what was answered, and what happened besides.

A log line names an acquisition by its lock and its fencing token, once it has one. The owner_id is
the proof of ownership and is in no line, nor is a hash of it: a reader who can guess an id could
find it by its hash. The workflow execution says who called and the owner_name, as far as the
request names them, and by the request id, which CloudTrail knows with the principal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics, single_metric
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from fairlock.names import NAMESPACE, SERVICE_NAME_VARIABLE, LogMessage, MetricName
from fairlock.protocol.model import AcquireRequest, ReleaseRequest
from fairlock.protocol.outcomes import Grant, NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.store import context


class _Provider(AmazonCloudWatchEMFProvider):
    """Publishes the metrics of an invocation, if there are any.

    A renewal and an invalid request count nothing, which is no mistake; Powertools would warn about
    it, in a log line that is not JSON.
    """

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:  # noqa: FBT001, FBT002 - Powertools' signature
        if self.metric_set:
            super().flush_metrics(raise_on_empty_metrics)


LONGEST_TOLD_WAIT_MS: Final = 7 * 24 * 3_600_000
"""More than the longest wait of a guard that polls, and of one whose queue is full."""

_BUSY: Final = {RefusalReason.HELD, RefusalReason.QUEUE_FULL}

_SERVICE: Final = os.environ.get(SERVICE_NAME_VARIABLE, "fairlock")

logger: Final = Logger(service=_SERVICE, utc=True)
metrics: Final = Metrics(provider=_Provider(namespace=NAMESPACE, service=_SERVICE))


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


def _current_wait_ms(
    request: AcquireRequest, answer: Queued | Refusal, *, now_ms: int
) -> int | None:
    """How long the caller has waited so far; None if that is not known.

    The service knows since when a waiter is in the queue. A caller that polls says it itself, and
    may say anything: what no polling caller can have waited is not measured.
    """
    if isinstance(answer, Queued):
        return max(0, now_ms - answer.entered_at_ms)
    if request.waiting_since_ms is None or answer.reason not in _BUSY:
        return None
    waited_ms = max(0, now_ms - request.waiting_since_ms)
    return waited_ms if waited_ms <= LONGEST_TOLD_WAIT_MS else None


def _measure_current_wait(waited_ms: int | None) -> dict[str, int]:
    """Measures a wait, and returns it as the field of a log line."""
    if waited_ms is None:
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
        waits = _measure_current_wait(_current_wait_ms(request, answer, now_ms=now_ms))
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
    name, log, message = _EVENTS[type(event)]
    count(name, event.holders if isinstance(event, context.Evicted) else 1)
    log(message, extra=asdict(event))


_EVENTS: Final[dict[type[context.Event], tuple[MetricName, Callable[..., None], LogMessage]]] = {
    context.Evicted: (MetricName.TAKEN_OVER, logger.warning, LogMessage.EVICTED),
    context.ReleasedByForce: (
        MetricName.FORCED_RELEASE,
        logger.warning,
        LogMessage.RELEASED_BY_FORCE,
    ),
    context.CeilingChanged: (
        MetricName.CEILING_CHANGED,
        logger.warning,
        LogMessage.CEILING_CHANGED,
    ),
    context.MixedLimits: (MetricName.MIXED_LIMITS, logger.warning, LogMessage.MIXED_LIMITS),
    context.Extended: (MetricName.EXTENDED, logger.info, LogMessage.EXTENDED),
    context.LivenessUnknown: (
        MetricName.LIVENESS_UNKNOWN,
        logger.warning,
        LogMessage.LIVENESS_UNKNOWN,
    ),
    context.PushUnknown: (MetricName.PUSH_UNKNOWN, logger.warning, LogMessage.PUSH_UNKNOWN),
    context.ClaimNotRemoved: (
        MetricName.CLAIM_NOT_REMOVED,
        logger.warning,
        LogMessage.CLAIM_NOT_REMOVED,
    ),
}
