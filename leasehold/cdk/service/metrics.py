"""The service's metrics as CloudWatch metrics, for alarms and dashboards.

All lock services of an account and region share one set of metrics: the only dimension is
`service`, because lock names are unbounded.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from leasehold.metrics import NAMESPACE, SERVICE, MetricName


class MetricOptions(TypedDict, total=False):
    """How to look at a metric. Left out: the sum (times: the 95th percentile) of 5 minutes."""

    statistic: str
    period: Duration
    label: str


class LockMetrics:
    """The `metric_*` methods of a lock service."""

    def metric_granted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Grants; the repeats of one acquisition are not counted."""
        return _count(MetricName.GRANTED, options)

    def metric_busy(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Refusals because the permits were out: how much polling goes on."""
        return _count(MetricName.BUSY, options)

    def metric_taken_over(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Holders who lost their place because their lease was over."""
        return _count(MetricName.TAKEN_OVER, options)

    def metric_released(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Releases by a holder."""
        return _count(MetricName.RELEASED, options)

    def metric_lost(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Heartbeats and releases of somebody who did not hold the lock any more."""
        return _count(MetricName.LOST, options)

    def metric_queued(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Waiters that joined the queue, or asked again from their place in it."""
        return _count(MetricName.QUEUED, options)

    def metric_queue_length(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Position of a waiter in the queue when it joined or asked again; default the highest."""
        return _metric(MetricName.QUEUE_LENGTH, "Maximum", options)

    def metric_handed_over(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Permits that went to the oldest waiter. They count as granted, too."""
        return _count(MetricName.HANDED_OVER, options)

    def metric_left_queue(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Waiters that gave up."""
        return _count(MetricName.LEFT_QUEUE, options)

    def metric_wait_time(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from a waiter's entry to its grant."""
        return _metric(MetricName.WAIT_TIME, "p95", options)

    def metric_hand_off_latency(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from the moment a departure was found out to the push to the next holder."""
        return _metric(MetricName.HAND_OFF_LATENCY, "p95", options)

    def metric_push_unknown(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Waiters that hold the lock and may not know it before their fallback poll."""
        return _count(MetricName.PUSH_UNKNOWN, options)

    def metric_extended(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Leases that ran out while their workflow still ran: choose a longer lease."""
        return _count(MetricName.EXTENDED, options)

    def metric_liveness_unknown(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Takeovers put off because Step Functions did not say whether the workflow still ran."""
        return _count(MetricName.LIVENESS_UNKNOWN, options)

    def metric_reaped(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Holders freed because their workflow had ended without releasing."""
        return _count(MetricName.REAPED, options)

    def metric_reaped_waiters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Waiters taken out of queues because their workflow had ended."""
        return _count(MetricName.REAPED_WAITERS, options)

    def metric_claim_not_removed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Locks that were released, but whose claim stays until TTL removes it. Harmless."""
        return _count(MetricName.CLAIM_NOT_REMOVED, options)

    def metric_reacquired(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Redriven workflows with keep_alive that found their lock free, and took it again."""
        return _count(MetricName.REACQUIRED, options)

    def metric_held_time(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from grant to release."""
        return _metric(MetricName.HELD_TIME, "p95", options)


def _count(name: MetricName, options: MetricOptions) -> cloudwatch.Metric:
    return _metric(name, "Sum", options)


def _metric(name: MetricName, statistic: str, options: MetricOptions) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name.value,
        dimensions_map={"service": SERVICE},
        statistic=options.get("statistic", statistic),
        period=options.get("period"),
        label=options.get("label"),
    )
