"""The service's metrics as CloudWatch metrics, for alarms and dashboards.

Their only dimension is the service, because lock names are unbounded.
"""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from fairlock.errors import InvalidRequest
from fairlock.metrics import NAMESPACE, MetricName

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
    """The metrics of a lock service."""

    @property
    def service_name(self) -> str:
        """The value of the dimension `service`."""
        raise NotImplementedError

    def metric(self, name: MetricName | str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Any metric of `fairlock.metrics.MetricName`, by default over 5 minutes.

        Raises:
            InvalidRequest: the service has no metric of this name.
        """
        try:
            known = MetricName(name)
        except ValueError:
            rule = f"must be one of {', '.join(MetricName)}"
            raise InvalidRequest(field="name", rule=rule, value=name) from None
        options.setdefault("statistic", _STATISTICS.get(known, "Sum"))
        options.setdefault("dimensions_map", {"service": self.service_name})
        return cloudwatch.Metric(namespace=NAMESPACE, metric_name=known.value, **options)
