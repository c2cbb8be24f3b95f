"""Metrics and logs of the handlers: what was answered, and what happened besides.

Owners are named by a fingerprint: the owner_id itself is the proof of ownership.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from leasehold.metrics import NAMESPACE, SERVICE, MetricName
from leasehold.protocol.model import (
    Grant,
    HandOff,
    NotHeld,
    Queued,
    Refusal,
    RefusalReason,
    Released,
)
from leasehold.store import events


class _Provider(AmazonCloudWatchEMFProvider):
    """Publishes the metrics of an invocation, if there are any.

    A renewal and an invalid request count nothing, which is no mistake; Powertools would warn about
    it, in a log line that is not JSON.
    """

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:  # noqa: FBT001, FBT002 - Powertools' signature
        if self.metric_set:
            super().flush_metrics(raise_on_empty_metrics)


logger: Final = Logger(service=SERVICE, utc=True)
metrics: Final = Metrics(provider=_Provider(namespace=NAMESPACE, service=SERVICE))


def count(name: MetricName, number: int = 1) -> None:
    """Adds to a count, unless there is nothing to add."""
    if number:
        metrics.add_metric(name=name.value, unit=MetricUnit.Count, value=number)


def _measure_ms(name: MetricName, milliseconds: int) -> None:
    metrics.add_metric(name=name.value, unit=MetricUnit.Milliseconds, value=milliseconds)


def owner_fields(lock_name: str, owner_id: str) -> dict[str, object]:
    """The fields by which a log line names a lock and one of its owners."""
    fingerprint = hashlib.sha256(owner_id.encode()).hexdigest()[:12]
    return {"lock_name": lock_name, "owner": fingerprint}


def observe_acquire(answer: Grant | Queued | Refusal) -> None:
    """Counts and logs the answer to an acquire."""
    owner = owner_fields(answer.lock_name, answer.owner_id)
    match answer:
        case Grant():
            count(MetricName.GRANTED, 0 if answer.repeated else 1)
            count(MetricName.TAKEN_OVER, answer.taken_over)
            logger.info("granted", extra={**owner, "fencing_token": answer.fencing_token})
        case Queued():
            count(MetricName.QUEUED)
            count(MetricName.QUEUE_LENGTH, answer.position)
            logger.info("queued", extra={**owner, "position": answer.position})
        case Refusal():
            count(MetricName.BUSY, int(answer.reason is RefusalReason.HELD))
            logger.info("refused", extra={**owner, "reason": answer.reason.value})


def observe_heartbeat(answer: Grant | NotHeld) -> None:
    """Counts and logs the answer to a heartbeat."""
    owner = owner_fields(answer.lock_name, answer.owner_id)
    if isinstance(answer, Grant):
        logger.debug("renewed", extra={**owner, "fencing_token": answer.fencing_token})
    else:
        count(MetricName.LOST)
        logger.warning("not held", extra=owner)


def observe_release(answer: Released | NotHeld, *, may_have_waited: bool) -> None:
    """Counts and logs the answer to a release. A waiter that gives up has lost nothing."""
    owner = owner_fields(answer.lock_name, answer.owner_id)
    if isinstance(answer, NotHeld):
        count(MetricName.LOST, 0 if may_have_waited else 1)
        logger.warning("not held", extra=owner)
        return
    count(MetricName.LEFT_QUEUE, int(answer.left_queue))
    if answer.held_ms is not None:
        count(MetricName.RELEASED)
        _measure_ms(MetricName.HELD_TIME, answer.held_ms)
    logger.info("released", extra={**owner, "held_ms": answer.held_ms})


def observe_event(event: events.Event) -> None:
    """Counts and logs what happened besides the answer."""
    if isinstance(event, HandOff):
        count(MetricName.GRANTED)
        count(MetricName.HANDED_OVER)
        _measure_ms(MetricName.WAIT_TIME, event.waited_ms)
        _measure_ms(MetricName.HAND_OFF_LATENCY, event.latency_ms)
        owner = owner_fields(event.grant.lock_name, event.grant.owner_id)
        waited = {"fencing_token": event.grant.fencing_token, "waited_ms": event.waited_ms}
        logger.info("handed over", extra={**owner, **waited})
        return
    name, log, message = _EVENTS[type(event)]
    count(name, event.holders if isinstance(event, events.Evicted) else 1)
    log(message, extra=asdict(event))


_EVENTS: Final[dict[type[events.Event], tuple[MetricName, Callable[..., None], str]]] = {
    events.Evicted: (MetricName.TAKEN_OVER, logger.warning, "evicted"),
    events.Extended: (MetricName.EXTENDED, logger.info, "extended"),
    events.LivenessUnknown: (MetricName.LIVENESS_UNKNOWN, logger.warning, "liveness unknown"),
    events.PushUnknown: (MetricName.PUSH_UNKNOWN, logger.warning, "push unknown"),
    events.ClaimNotRemoved: (MetricName.CLAIM_NOT_REMOVED, logger.warning, "claim not removed"),
}
