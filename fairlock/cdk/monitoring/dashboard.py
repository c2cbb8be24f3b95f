"""The graphs of the dashboard, from who holds to what fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_cloudwatch as cloudwatch

from fairlock.cdk.monitoring.monitored import MonitoredService
from fairlock.metrics import MetricName

_WIDTH: Final = 8
"""Three graphs a row: a dashboard is 24 units wide."""
_PERCENTILES: Final = ("p50", "p95")
_TROUBLES: Final = (
    MetricName.LOST,
    MetricName.TAKEN_OVER,
    MetricName.FORCED_RELEASE,
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
