"""What a service costs an hour, by CloudWatch's math over metrics that AWS has anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from leasehold.cdk.monitoring.monitored import MonitoredService
from leasehold.metrics import MetricName

_MILLION: Final = 1_000_000
WRITE_UNIT_USD: Final = 0.625 / _MILLION
READ_UNIT_USD: Final = 0.125 / _MILLION
INVOCATION_USD: Final = 0.20 / _MILLION
COMPUTE_MS_USD: Final = 0.0000133334 / 1000 * 256 / 1024
"""A millisecond of a function with 256 MiB on arm64, the default of `LockService`."""
TRANSITION_USD: Final = 25 / _MILLION
"""List prices of us-east-1, as README takes them."""
TRANSITIONS_OF_A_GUARD: Final = 3
"""Beside the task, uncontended or in the queue; see README, "What it costs". A heartbeat is one."""


def cost_of(service: MonitoredService) -> list[cloudwatch.IMetric]:
    """The parts of the cost in USD an hour.

    The transitions are an estimate: that of a service whose every grant is a guard's, uncontended
    or after one fallback period at most, and every heartbeat that of a guard with keep_alive.
    """
    functions = range(len(service.functions))
    invocations = {f"invocations{n}": each for n, each in enumerate(service.invocations())}
    milliseconds = {f"milliseconds{n}": each for n, each in enumerate(service.compute_time())}
    compute = [
        *(f"FILL(invocations{n},0)*{_number(INVOCATION_USD)}" for n in functions),
        *(f"FILL(milliseconds{n},0)*{_number(COMPUTE_MS_USD)}" for n in functions),
    ]
    return [
        _cost(
            "Table",
            f"FILL(writes,0)*{_number(WRITE_UNIT_USD)}+FILL(reads,0)*{_number(READ_UNIT_USD)}",
            {"writes": service.consumed("Write"), "reads": service.consumed("Read")},
        ),
        _cost("Functions", "+".join(compute), {**invocations, **milliseconds}),
        _cost(
            "State transitions, if all calls are guards'",
            f"FILL(granted,0)*{_number(TRANSITIONS_OF_A_GUARD * TRANSITION_USD)}"
            f"+FILL(heartbeats,0)*{_number(TRANSITION_USD)}",
            {
                "granted": service.metric(MetricName.GRANTED),
                "heartbeats": service.functions["Heartbeat"].metric_invocations(statistic="Sum"),
            },
        ),
    ]


def _cost(
    label: str, expression: str, metrics: Mapping[str, cloudwatch.IMetric]
) -> cloudwatch.IMetric:
    return cloudwatch.MathExpression(
        expression=expression,
        using_metrics=dict(metrics),
        label=label,
        period=Duration.hours(1),
    )


def _number(price: float) -> str:
    """A price as CloudWatch's expressions take numbers: without an exponent."""
    return f"{price:.13f}".rstrip("0")
