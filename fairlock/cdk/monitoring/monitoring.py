"""`LockMonitoring`: a dashboard for a lock service, saved queries of its logs, and alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from fairlock.cdk.construct_arguments import check_place
from fairlock.cdk.monitoring.dashboard import graphs_of
from fairlock.cdk.monitoring.monitored import MonitoredService
from fairlock.cdk.monitoring.saved_queries import save_queries
from fairlock.cdk.monitoring.thresholds import LockAlarms
from fairlock.cdk.service.imported_service import LockServiceBase
from fairlock.errors import InvalidRequest
from fairlock.metrics import MetricName

_PERIODS_OF_A_WAIT: Final = 3
"""A waiter asks every 5 minutes by default, and a little later each time: single periods may have
no value. One that is too high in any of three periods is enough, and so the alarm stays."""


class LockMonitoring(Construct):
    """A dashboard, saved queries, and the alarms that were asked for.

    Shows this service alone. The metrics have no dimension of a lock; the logs name locks and
    owners.

    Attributes:
        dashboard: the dashboard.
        alarms: by name, such as "CurrentWait"; empty if none were asked for.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: LockServiceBase,
        alarm_topic: sns.ITopic | None = None,
        alarms: LockAlarms | None = None,
        dashboard_name: str | None = None,
    ) -> None:
        """Declares the dashboard, the queries and the alarms.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            service: a `LockService`, or one of `LockService.from_stack`.
            alarm_topic: is told when an alarm fires and when it is over; default is nobody.
            alarms: the thresholds; default is `LockAlarms()` with a topic, and no alarms without.
            dashboard_name: default is a name that CloudFormation makes.

        Raises:
            InvalidRequest: `service` is no lock service; `alarms`
                are no `LockAlarms`; `alarm_topic` is no topic.
        """
        check_place(scope, construct_id)
        if not isinstance(service, LockServiceBase):
            rule = "must be a LockService, or one of LockService.from_stack(…)"
            raise InvalidRequest(field="service", rule=rule, value=service)
        if alarms is not None and not isinstance(alarms, LockAlarms):
            rule = "must be LockAlarms(…), or None"
            raise InvalidRequest(field="alarms", rule=rule, value=alarms)
        if alarm_topic is not None and not hasattr(alarm_topic, "topic_arn"):
            rule = "must be an aws_sns.ITopic, such as Topic.from_topic_arn(…)"
            raise InvalidRequest(field="alarm_topic", rule=rule, value=alarm_topic)
        super().__init__(scope, construct_id)
        monitored = MonitoredService(service)
        self.dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=dashboard_name, widgets=graphs_of(monitored)
        )
        save_queries(self, service.log_group_names)
        if alarms is None and alarm_topic is not None:
            alarms = LockAlarms()
        self._topic = alarm_topic
        self._alarms: dict[str, cloudwatch.Alarm] = {}
        if alarms is not None:
            self._alarms_of_locks(monitored, alarms)
            self._alarms_of_parts(monitored, alarms)

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """The alarms by name."""
        return self._alarms

    def _alarms_of_locks(self, monitored: MonitoredService, alarms: LockAlarms) -> None:
        self._alarm(
            "CurrentWait",
            monitored.metric(MetricName.CURRENT_WAIT),
            _milliseconds(alarms.current_wait),
            "A waiter has waited too long, and waits still: a lock may be stuck.",
            periods=_PERIODS_OF_A_WAIT,
        )
        self._alarm(
            "HandOffLatency",
            monitored.metric(MetricName.HAND_OFF_LATENCY),
            _milliseconds(alarms.hand_off_latency),
            "The next holder is told late that it holds the lock.",
        )
        for name, threshold, description in (
            (MetricName.LOST, alarms.lost, "An owner acted on a lock that it had lost."),
            (MetricName.TAKEN_OVER, alarms.taken_over, "Holders were evicted: leases were over."),
            (MetricName.QUEUE_LENGTH, alarms.queue_length, "Many wait for one lock."),
        ):
            self._alarm(name.value, monitored.metric(name), threshold, description)

    def _alarms_of_parts(self, monitored: MonitoredService, alarms: LockAlarms) -> None:
        if monitored.dead_letters is not None:
            description = "The reaper could not handle an event: a lock stays until its lease ends."
            self._alarm("DeadLetters", monitored.dead_letters, alarms.dead_letters, description)
        for name, metric in monitored.errors().items():
            description = f"The function {name} fails."
            self._alarm(f"{name}Errors", metric, alarms.function_errors, description)
        for name, metric in monitored.throttles().items():
            description = f"AWS throttles {name}: calls are late, or fail as outcome unknown."
            self._alarm(f"{name}Throttles", metric, alarms.throttles, description)

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        threshold: int | None,
        description: str,
        *,
        periods: int = 1,
    ) -> None:
        """Makes an alarm that any one of the last periods makes fire; silence is good news."""
        if threshold is None:
            return
        alarm = cloudwatch.Alarm(
            self,
            name,
            metric=metric,
            threshold=threshold,
            evaluation_periods=periods,
            datapoints_to_alarm=1,
            comparison_operator=_AT_LEAST,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=f"Fairlock: {description} See docs/monitoring.md, {name}.",
        )
        if self._topic is not None:
            action = actions.SnsAction(self._topic)
            alarm.add_alarm_action(action)
            alarm.add_ok_action(action)
        self._alarms[name] = alarm


_AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


def _milliseconds(duration: Duration | None) -> int | None:
    return None if duration is None else int(duration.to_milliseconds())
