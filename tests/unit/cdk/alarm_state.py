"""What CloudWatch would make of an alarm, from its template and from lines that functions print.

It knows what these alarms use: one metric with a plain statistic, periods without a value that
count as good, and as many bad ones as `DatapointsToAlarm` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

Json = dict[str, Any]
Datum = tuple[float, float]

_STATISTICS: Final[dict[str, Callable[[list[float]], float]]] = {"Maximum": max, "Sum": sum}


def data_of(alarm: Json, lines: Iterable[str]) -> list[Datum]:
    """The values of the alarm's metric among EMF lines, each with its time in seconds."""
    wanted = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
    data: list[Datum] = []
    for line in map(json.loads, lines):
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            same = directive["Namespace"] == alarm["Namespace"]
            named = any(each["Name"] == alarm["MetricName"] for each in directive["Metrics"])
            dimensions = [{name: line[name] for name in names} for names in directive["Dimensions"]]
            if same and named and wanted in dimensions:
                at = line["_aws"]["Timestamp"] / 1000
                data += [(at, value) for value in line[alarm["MetricName"]]]
    return data


def fires(alarm: Json, data: Iterable[Datum], *, at: float) -> bool:
    """Whether the alarm fires at a time, in seconds."""
    assert alarm["TreatMissingData"] == "notBreaching"
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    statistic, period = _STATISTICS[alarm["Statistic"]], alarm["Period"]
    data = list(data)
    last = int(at // period)
    breaching = 0
    for number in range(last - alarm["EvaluationPeriods"] + 1, last + 1):
        values = [value for when, value in data if int(when // period) == number and when <= at]
        breaching += bool(values) and statistic(values) >= alarm["Threshold"]
    return breaching >= int(alarm["DatapointsToAlarm"])
