"""The service's metrics as CloudWatch metrics, for alarms and dashboards.

All lock services of an account and region share one set of metrics: the only dimension is
`service`, because lock names are unbounded.
"""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from leasehold.errors import InvalidRequest
from leasehold.metrics import NAMESPACE, SERVICE, MetricName

_STATISTICS: Final = {
    MetricName.WAIT_TIME: "p95",
    MetricName.HELD_TIME: "p95",
    MetricName.HAND_OFF_LATENCY: "p95",
    MetricName.QUEUE_LENGTH: "Maximum",
    MetricName.CURRENT_WAIT: "Maximum",
}
"""Default statistics; every other metric is a count, shown as its sum."""


class MetricOptions(TypedDict, total=False):
    """The options of every CloudWatch metric: `aws_cloudwatch.MetricOptions`."""

    account: str
    color: str
    dimensions_map: dict[str, str]
    id: str
    label: str
    period: Duration
    region: str
    stack_account: str
    stack_region: str
    statistic: str
    unit: cloudwatch.Unit
    visible: bool


class LockMetrics:
    """The metrics of a lock service: those that most alarms watch by method, any by its name."""

    def metric(self, name: MetricName | str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Any metric of `leasehold.metrics.MetricName`, by default over 5 minutes.

        Raises:
            InvalidRequest: the service has no metric of this name.
        """
        try:
            known = MetricName(name)
        except ValueError:
            rule = f"must be one of {', '.join(MetricName)}"
            raise InvalidRequest(field="name", rule=rule, value=name) from None
        options.setdefault("statistic", _STATISTICS.get(known, "Sum"))
        options.setdefault("dimensions_map", {"service": SERVICE})
        return cloudwatch.Metric(namespace=NAMESPACE, metric_name=known.value, **options)

    def metric_granted(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Grants; the repeats of one acquisition are not counted."""
        return self.metric(MetricName.GRANTED, **options)

    def metric_lost(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Heartbeats and releases of owners who did not hold the lock any more."""
        return self.metric(MetricName.LOST, **options)

    def metric_wait_time(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from a waiter's entry to its grant."""
        return self.metric(MetricName.WAIT_TIME, **options)

    def metric_current_wait(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds that those who wait have waited so far, by default the longest.

        A waiter tells it each time it asks the functions: a guard each fallback period. Waits of
        `LockClient`, which asks the table itself, are not in it.
        """
        return self.metric(MetricName.CURRENT_WAIT, **options)

    def metric_held_time(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from grant to release."""
        return self.metric(MetricName.HELD_TIME, **options)

    def metric_hand_off_latency(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Milliseconds from the moment a holder was found gone to the push to the next holder."""
        return self.metric(MetricName.HAND_OFF_LATENCY, **options)
