"""CloudFormation makes an alarm whose one metric is in a list.

AWS (CloudFormation template reference, AWS::CloudWatch::Alarm): an alarm names its metric by
MetricName, Namespace, Dimensions, Period and Statistic or ExtendedStatistic, or by Metrics, a list
of metrics and expressions. The CDK writes a list of one metric as soon as the metric has a label.

Emulator: refuses every list.

This: a list of one metric makes the alarm that the single properties make. DescribeAlarms tells
these properties, and not the list. A list with an expression is refused as before.
"""

from collections.abc import Mapping
from typing import Any, Final

from testbed.localaws.corrections import _provisioner

_STATISTICS: Final = {"Average", "Maximum", "Minimum", "SampleCount", "Sum"}


def apply() -> None:
    """Make alarms of lists with one metric."""
    _provisioner.wrap("AWS::CloudWatch::Alarm", _with_single_properties)


def _with_single_properties(handlers: _provisioner.Handlers) -> None:
    create, update = handlers["create"], handlers["update"]

    def create_alarm(logical_id: str, properties: Any, *more: Any) -> Any:
        return create(logical_id, _single(properties), *more)

    def update_alarm(physical_id: str, old: Any, new: Any, *more: Any, **named: Any) -> Any:
        return update(physical_id, _single(old), _single(new), *more, **named)

    handlers.update(create=create_alarm, update=update_alarm)


def _single(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The properties without a list of metrics, if the list has one metric and no expression."""
    listed = properties.get("Metrics") or []
    if len(listed) != 1 or "MetricStat" not in listed[0]:
        return properties
    measured = listed[0]["MetricStat"]
    kind = "Statistic" if measured["Stat"] in _STATISTICS else "ExtendedStatistic"
    rest = {name: value for name, value in properties.items() if name != "Metrics"}
    return {**rest, **measured["Metric"], "Period": measured["Period"], kind: measured["Stat"]}
