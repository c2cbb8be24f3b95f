"""The graphs of the dashboard, from who holds to what fails, and the metrics that they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_

from fairlock.cdk.service.service_base import AnyLockService
from fairlock.names import MetricName

Functions = Mapping[str, lambda_.IFunction]
Metrics = Mapping[str, cloudwatch.Metric]


def functions_of(service: AnyLockService) -> Functions:
    """The functions whose failures matter to workflows, by their names."""
    functions = {
        "Acquire": service.acquire_function,
        "Heartbeat": service.heartbeat_function,
        "Release": service.release_function,
        "Reap": service.reap_function,
        "Publish": service.publish_function,
    }
    return {name: each for name, each in functions.items() if each is not None}


def errors_of(functions: Functions) -> Metrics:
    """The errors of each function."""
    return {name: each.metric_errors(label=name) for name, each in functions.items()}


def throttles_of(functions: Functions, table_name: str) -> Metrics:
    """The throttles of each function, and of the table's reads and writes."""
    throttles = {name: each.metric_throttles(label=name) for name, each in functions.items()}
    for kind in ("Read", "Write"):
        metric = _of_table(table_name, f"{kind}ThrottleEvents", f"Table, {kind.lower()}s")
        throttles[f"Table{kind}"] = metric
    return throttles


def _of_table(table_name: str, name: str, label: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace="AWS/DynamoDB",
        metric_name=name,
        dimensions_map={"TableName": table_name},
        statistic="Sum",
        label=label,
    )


_WIDTH: Final = 8
"""Three graphs a row: a dashboard is 24 units wide."""
_TROUBLES: Final = (
    MetricName.LOST,
    MetricName.TAKEN_OVER,
    MetricName.FORCED_RELEASE,
    MetricName.CEILING_CHANGED,
    MetricName.LIVENESS_UNKNOWN,
    MetricName.PUSH_UNKNOWN,
    MetricName.MIXED_LIMITS,
)


def graphs_of(
    service: AnyLockService, functions: Functions, dead_letters: Sequence[cloudwatch.IMetric]
) -> list[list[cloudwatch.IWidget]]:
    """The graphs, row by row."""

    def metrics(*names: MetricName) -> list[cloudwatch.IMetric]:
        return [service.metric(name) for name in names]

    def percentiles(name: MetricName) -> list[cloudwatch.IMetric]:
        statistics = ("p50", "p95")
        return [service.metric(name, statistic=p, label=f"{name} {p}") for p in statistics]

    m, each = MetricName, functions.items()
    durations = [it.metric_duration(statistic="p95", label=name) for name, it in each]
    invocations = [it.metric_invocations(statistic="Sum", label=name) for name, it in each]
    turnover = metrics(m.GRANTED, m.HANDED_OVER, m.RELEASED, m.BUSY)
    reaped = [*metrics(m.REAPED, m.REAPED_WAITERS), *dead_letters]
    table = service.table_name
    units = [_of_table(table, f"Consumed{k}CapacityUnits", f"{k} units") for k in ("Write", "Read")]
    return [
        [
            _graph("Current wait, longest (ms)", metrics(m.CURRENT_WAIT)),
            _graph("Waiters of one lock, most", metrics(m.QUEUE_LENGTH)),
            _graph("Granted, handed over, released, busy", turnover),
        ],
        [
            _graph("Wait until the grant (ms)", percentiles(m.WAIT_TIME)),
            _graph("Held (ms)", percentiles(m.HELD_TIME)),
            _graph("Hand-off latency (ms)", percentiles(m.HAND_OFF_LATENCY)),
        ],
        [
            _graph("Lost, taken over and other troubles", metrics(*_TROUBLES)),
            _graph("Reaped, and dead letters", reaped),
            _graph("Queued, left the queue", metrics(m.QUEUED, m.LEFT_QUEUE)),
        ],
        [
            _graph("Errors of the functions", [*errors_of(functions).values()]),
            _graph("Throttles", [*throttles_of(functions, table).values()]),
            _graph("Duration of the functions, p95 (ms)", durations),
        ],
        [
            _graph("Units of the table", units),
            _graph("Invocations of the functions", invocations),
        ],
    ]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=_WIDTH)
