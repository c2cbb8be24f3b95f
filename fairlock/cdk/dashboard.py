"""The graphs of the dashboard, from who holds to what fails, and the metrics that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_

from fairlock.cdk.service.service_base import LockServiceBase
from fairlock.names import MetricName


class MonitoredService:
    """What can be watched of one service; without a reaper it has no dead letters."""

    def __init__(self, service: LockServiceBase) -> None:
        """Takes a service of any kind."""
        self._service = service
        self.functions: Mapping[str, lambda_.IFunction] = {
            "Acquire": service.acquire_function,
            "Heartbeat": service.heartbeat_function,
            "Release": service.release_function,
            **({} if service.reap_function is None else {"Reap": service.reap_function}),
            **({} if service.publish_function is None else {"Publish": service.publish_function}),
        }
        self.dead_letters = service.metric_dead_letters() if service.has_dead_letters else None
        self.oldest_event = service.metric_oldest_event() if service.has_dead_letters else None

    def metric(self, name: MetricName, statistic: str | None = None) -> cloudwatch.Metric:
        """A metric of the service, labelled with its statistic if one is given."""
        if statistic is None:
            return self._service.metric(name)
        return self._service.metric(name, statistic=statistic, label=f"{name} {statistic}")

    def errors(self) -> dict[str, cloudwatch.Metric]:
        """The errors of each function."""
        return {name: each.metric_errors(label=name) for name, each in self.functions.items()}

    def durations(self) -> list[cloudwatch.IMetric]:
        """The durations of all functions."""
        functions = self.functions.items()
        return [each.metric_duration(statistic="p95", label=name) for name, each in functions]

    def invocations(self) -> list[cloudwatch.IMetric]:
        """The invocations of all functions."""
        functions = self.functions.items()
        return [each.metric_invocations(statistic="Sum", label=name) for name, each in functions]

    def consumed(self, kind: str) -> cloudwatch.Metric:
        """The units that the table's "Read" or "Write" requests took."""
        return self._of_table(f"Consumed{kind}CapacityUnits", f"{kind} units")

    def throttles(self) -> dict[str, cloudwatch.Metric]:
        """The throttles of each function, and of the table's reads and writes."""
        throttles = {n: each.metric_throttles(label=n) for n, each in self.functions.items()}
        for kind in ("Read", "Write"):
            metric = self._of_table(f"{kind}ThrottleEvents", f"Table, {kind.lower()}s")
            throttles[f"Table{kind}"] = metric
        return throttles

    def _of_table(self, name: str, label: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name=name,
            dimensions_map={"TableName": self._service.table_name},
            statistic="Sum",
            label=label,
        )


_WIDTH: Final = 8
"""Three graphs a row: a dashboard is 24 units wide."""
_PERCENTILES: Final = ("p50", "p95")
_TROUBLES: Final = (
    MetricName.LOST,
    MetricName.TAKEN_OVER,
    MetricName.FORCED_RELEASE,
    MetricName.CEILING_CHANGED,
    MetricName.LIVENESS_UNKNOWN,
    MetricName.PUSH_UNKNOWN,
    MetricName.MIXED_LIMITS,
)
_REAPER: Final = (MetricName.REAPED, MetricName.REAPED_WAITERS)
_TURNOVER: Final = (
    MetricName.GRANTED,
    MetricName.HANDED_OVER,
    MetricName.RELEASED,
    MetricName.BUSY,
)


def graphs_of(service: MonitoredService) -> list[list[cloudwatch.IWidget]]:
    """The graphs, row by row."""

    def counts(names: Sequence[MetricName]) -> list[cloudwatch.IMetric]:
        return [service.metric(name) for name in names]

    def percentiles(name: MetricName) -> list[cloudwatch.IMetric]:
        return [service.metric(name, statistic) for statistic in _PERCENTILES]

    dead_letters = [] if service.dead_letters is None else [service.dead_letters]
    return [
        [
            _graph("Current wait, longest (ms)", [service.metric(MetricName.CURRENT_WAIT)]),
            _graph("Waiters of one lock, most", [service.metric(MetricName.QUEUE_LENGTH)]),
            _graph("Granted, handed over, released, busy", counts(_TURNOVER)),
        ],
        [
            _graph("Wait until the grant (ms)", percentiles(MetricName.WAIT_TIME)),
            _graph("Held (ms)", percentiles(MetricName.HELD_TIME)),
            _graph("Hand-off latency (ms)", percentiles(MetricName.HAND_OFF_LATENCY)),
        ],
        [
            _graph("Lost, taken over and other troubles", counts(_TROUBLES)),
            _graph("Reaped, and dead letters", [*counts(_REAPER), *dead_letters]),
            _graph("Queued, left the queue", counts((MetricName.QUEUED, MetricName.LEFT_QUEUE))),
        ],
        [
            _graph("Errors of the functions", list(service.errors().values())),
            _graph("Throttles", list(service.throttles().values())),
            _graph("Duration of the functions, p95 (ms)", service.durations()),
        ],
        [
            _graph("Units of the table", [service.consumed("Write"), service.consumed("Read")]),
            _graph("Invocations of the functions", service.invocations()),
        ],
    ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=_WIDTH)
