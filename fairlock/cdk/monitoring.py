"""`LockMonitoring`: a dashboard for a lock service, saved queries of its logs, and alarms.

The saved queries are of CloudWatch Logs Insights: logs name the locks, which metrics do not.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aws_cdk import Annotations, Duration, Names, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from fairlock.cdk.dashboard import (
    Functions,
    errors_of,
    functions_of,
    graphs_of,
    throttles_of,
)
from fairlock.cdk.fragments import check_place, is_whole, require, whole_seconds
from fairlock.cdk.service.functions import FunctionFactory, FunctionSettings
from fairlock.cdk.service.service_base import AnyLockService, LockServiceBase
from fairlock.errors import explained
from fairlock.names import WATCHED_VARIABLE, LogMessage, MetricName
from fairlock.text import documented
from fairlock.wire.rules import LOCK_NAME

_DURATIONS = ("current_wait", "hand_off_latency", "reaper_delay")
_COUNTS = ("lost", "taken_over", "queue_length", "dead_letters", "function_errors", "throttles")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAlarms:
    """Thresholds, each for a period of 5 minutes; None makes no alarm.

    Attributes:
        current_wait: a waiter asks again after it has waited so long: its lock may be stuck. Give
            more than your work usually makes others wait, and at least a fallback period less than
            the `max_wait` of guards: they do not ask again before they give up.
        lost: owners that acted on a lock which they had lost.
        taken_over: holders that were evicted because their leases were over.
        queue_length: waiters of one lock.
        hand_off_latency: the 95th percentile, from a release to the next holder's notification.
        dead_letters: events that the reaper could not handle; none if the service has no reaper.
        reaper_delay: an event has waited so long for the reaper, which does not run or cannot keep
            up; none if the service has no reaper. Ten tries of one event take twenty minutes.
        function_errors: of one function. Requests that it refuses by an error count, too.
        throttles: of one function, or of the table's reads or writes.
    """

    current_wait: Duration | None = field(default_factory=lambda: Duration.minutes(20))
    lost: int | None = 1
    taken_over: int | None = None
    queue_length: int | None = None
    hand_off_latency: Duration | None = None
    dead_letters: int | None = 1
    reaper_delay: Duration | None = field(default_factory=lambda: Duration.minutes(30))
    function_errors: int | None = 10
    throttles: int | None = 1

    def __post_init__(self) -> None:
        """Checks each threshold."""
        for name in _DURATIONS:
            duration = getattr(self, name)
            is_long = duration is None or whole_seconds(name, duration) >= 1
            require(name, is_long, "must be longer than nothing, or None for no alarm", "0 s")
        for name in _COUNTS:
            count = getattr(self, name)
            is_right = count is None or is_whole(count, 1, math.inf)
            require(name, is_right, "must be a whole number from 1 on, or None for no alarm", count)


def _any_of(*messages: LogMessage) -> str:
    return ", ".join(f'"{message}"' for message in messages)


_HISTORY: Final = _any_of(
    LogMessage.GRANTED,
    LogMessage.HANDED_OVER,
    LogMessage.REACQUIRED,
    LogMessage.RELEASED,
    LogMessage.EVICTED,
    LogMessage.RELEASED_BY_FORCE,
    LogMessage.NOT_HELD,
    LogMessage.LOST,
)
_LOSSES: Final = _any_of(
    LogMessage.NOT_HELD,
    LogMessage.LOST,
    LogMessage.EVICTED,
    LogMessage.RELEASED_BY_FORCE,
    LogMessage.LIVENESS_UNKNOWN,
)
WHO_HELD_IT: Final = f"""\
fields @timestamp, message, owner_name, execution_arn, fencing_token, held_ms, reason
| filter lock_name = "customer/1234"
| filter message in [{_HISTORY}]
| sort @timestamp asc
| limit 1000"""
LONGEST_WAITS: Final = f"""\
filter message in [{_any_of(LogMessage.QUEUED, LogMessage.REFUSED)}] and waited_ms > 0
| stats max(waited_ms) / 1000 as waited_seconds, latest(@timestamp) as last_asked, \
count_distinct(execution_arn) as executions by lock_name
| sort waited_seconds desc
| limit 20"""
LOST_LOCKS: Final = f"""\
fields @timestamp, lock_name, message, owner_name, execution_arn, fencing_token, requested_by, \
reason
| filter message in [{_LOSSES}]
| sort @timestamp desc
| limit 200"""
_LOST_AND_TAKEN: Final = "Lost and taken away"
QUERIES: Final[Mapping[str, str]] = {
    "Who held a lock": WHO_HELD_IT,
    "Locks with the longest waits": LONGEST_WAITS,
    _LOST_AND_TAKEN: LOST_LOCKS,
}

_DASHBOARD_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")
_UNHEARD: Final = "fairlock:alarmsWithoutTopic"
_NO_TOPIC: Final = (
    "alarms send no message without a topic: give alarm_topic, or acknowledge this warning if you "
    "add actions to the alarms yourself"
)
_PERIODS_OF_A_WAIT: Final = 3
"""A waiter asks every 5 minutes by default, and a little later each time: single periods may have
no value. One that is too high in any of three periods is enough, and so the alarm stays."""


class LockMonitoring(Construct):
    """A dashboard of this service alone, saved queries, and the alarms that were asked for.

    Attributes:
        dashboard: the dashboard.
        alarms: by name, such as "CurrentWait"; empty if none were asked for.
    """

    @explained
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        service: AnyLockService,
        alarm_topic: sns.ITopic | None = None,
        alarms: LockAlarms | None = None,
        dashboard_name: str | None = None,
        watch: Sequence[str] = (),
    ) -> None:
        """Declares the dashboard, the queries and the alarms.

        Args:
            scope: the parent construct.
            construct_id: the name within the parent.
            service: a `LockService`, or one of `LockService.from_stack`.
            alarm_topic: gets a message when an alarm fires and when it ends; None for no message.
            alarms: the thresholds; default is `LockAlarms()` with a topic, and no alarms without.
            dashboard_name: default is a name that CloudFormation makes.
            watch: names of locks, such as "deploy/production", or beginnings of names with a star,
                such as "deploy/*". Every 5 minutes a function measures how long their oldest
                waiters have waited, those of `LockClient` included. Each name gets an alarm at
                `current_wait`. A name costs a read or two a time; a star reads the whole table.

        Raises:
            InvalidRequest: an argument breaks its rule.
        """
        check_place(scope, construct_id)
        rule = "must be a LockService, or one of LockService.from_stack(…)"
        require("service", isinstance(service, LockServiceBase), rule, service)
        is_alarms = alarms is None or isinstance(alarms, LockAlarms)
        require("alarms", is_alarms, "must be LockAlarms(…), or None", alarms)
        is_topic = alarm_topic is None or hasattr(alarm_topic, "topic_arn")
        rule = "must be an aws_sns.ITopic, such as Topic.from_topic_arn(…)"
        require("alarm_topic", is_topic, rule, alarm_topic)
        _check_dashboard_name(dashboard_name)
        _check_watched(watch)
        super().__init__(scope, construct_id)
        functions = functions_of(service)
        reaper: tuple[cloudwatch.Metric, cloudwatch.Metric] | None = None
        if service.has_dead_letters:
            reaper = (service.metric_dead_letters(), service.metric_oldest_event())
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=dashboard_name,
            widgets=graphs_of(service, functions, reaper[:1] if reaper else ()),
        )
        folder = Names.unique_resource_name(self, max_length=80)
        for name, query in QUERIES.items():
            logs.CfnQueryDefinition(
                self,
                name.title().replace(" ", ""),
                name=f"{folder}/{name}",
                query_string=query,
                log_group_names=service.log_group_names,
            )
        measuring = self._measure(service, watch) if watch else None
        if alarms is None and alarm_topic is not None:
            alarms = LockAlarms()
        elif alarms is not None and alarm_topic is None:
            Annotations.of(self).add_warning_v2(_UNHEARD, _NO_TOPIC)
        self._action = None if alarm_topic is None else actions.SnsAction(alarm_topic)
        self._table_name = service.table_name
        self._alarms: dict[str, cloudwatch.Alarm] = {}
        if alarms is not None:
            self._alarms_of_locks(service, alarms)
            if reaper is not None:
                self._alarms_of_reaper(*reaper, alarms)
            self._alarms_of_parts(functions, alarms)
            for name in watch:
                self._alarm_of_watched(service, name, alarms)
            if measuring is not None:  # Once a period, and what does not run measures nothing.
                errors, throttles = measuring.metric_errors(), measuring.metric_throttles()
                said = "The function that reads locks fails."
                self._alarm("WatchErrors", errors, 1, said, row="Errors")
                said, most = "AWS throttles the function that reads locks.", alarms.throttles
                self._alarm("WatchThrottles", throttles, most, said, row="Throttles")

    @property
    def alarms(self) -> Mapping[str, cloudwatch.Alarm]:
        """The alarms by name."""
        return self._alarms

    def _alarms_of_locks(self, service: AnyLockService, alarms: LockAlarms) -> None:
        lost = f"run the saved query {_LOST_AND_TAKEN!r} of this alarm's stack."
        stuck = "An owner has waited too long and is still waiting. A lock may be stuck."
        late, many = "The next holder receives the lock late.", "Many owners wait for one lock."
        taken = "Leases expired, and others took over."
        for name, threshold, said, first in (
            (MetricName.CURRENT_WAIT, alarms.current_wait, stuck, _WHO_WAITS),
            (MetricName.HAND_OFF_LATENCY, alarms.hand_off_latency, late, _WHO_WAITS),
            (MetricName.LOST, alarms.lost, "An owner acted on a lock that it had lost.", lost),
            (MetricName.TAKEN_OVER, alarms.taken_over, taken, lost),
            (MetricName.QUEUE_LENGTH, alarms.queue_length, many, _WHO_WAITS),
        ):
            self._alarm(name, service.metric(name), threshold, said, first=first)

    def _alarms_of_reaper(
        self, dead_letters: cloudwatch.Metric, oldest: cloudwatch.Metric, alarms: LockAlarms
    ) -> None:
        said = "The reaper could not handle an event. A lock stays until its lease ends."
        self._alarm("DeadLetters", dead_letters, alarms.dead_letters, said)
        seconds = alarms.reaper_delay and int(alarms.reaper_delay.to_seconds())
        said = "Events wait for the reaper. Dead workflows keep their locks for a lease."
        self._alarm("ReaperDelay", oldest, seconds, said)

    def _alarms_of_parts(self, functions: Functions, alarms: LockAlarms) -> None:
        for name, metric in errors_of(functions).items():
            said, most = f"The function {name} fails.", alarms.function_errors
            self._alarm(f"{name}Errors", metric, most, said, row="Errors")
        for name, metric in throttles_of(functions, self._table_name).items():
            said = f"AWS throttles {name}. Calls are late, or fail with an unknown outcome."
            self._alarm(f"{name}Throttles", metric, alarms.throttles, said, row="Throttles")

    def _measure(self, service: AnyLockService, watch: Sequence[str]) -> lambda_.Function:
        functions = FunctionFactory(
            self,
            table=service.table,
            service_name=service.service_name,
            settings=FunctionSettings(recursive_loop=False),
        )
        is_scan = any(name.endswith(_ANY) for name in watch)
        function = functions.make(
            "watch",
            more_table_actions=["Scan"] if is_scan else [],
            environment={WATCHED_VARIABLE: json.dumps(list(watch))},
            timeout_seconds=_WATCH_SECONDS,
        )
        # What is late is not measured any more: by then the next measurement is due.
        function.configure_async_invoke(retry_attempts=0, max_event_age=_WATCH_EVERY)
        events.Rule(self, "Every5Minutes", schedule=events.Schedule.rate(_WATCH_EVERY)).add_target(
            targets.LambdaFunction(function, retry_attempts=0)
        )
        return function

    def _alarm_of_watched(self, service: AnyLockService, name: str, alarms: LockAlarms) -> None:
        dimensions = {"service": service.service_name, "locks": name}
        shown = f"fairlock show {shlex.quote(name)}"
        if name.endswith(_ANY):
            shown = f"{_WHO_WAITS} --prefix {shlex.quote(name.removesuffix(_ANY))}"
        self._alarm(
            f"Waiting for {name}",
            service.metric(MetricName.CURRENT_WAIT, dimensions_map=dimensions),
            alarms.current_wait,
            f"An owner has waited too long for {name} and is still waiting.",
            first=shown,
            row=MetricName.CURRENT_WAIT,
        )

    def _alarm(
        self,
        name: str,
        metric: cloudwatch.Metric,
        threshold: int | Duration | None,
        description: str,
        *,
        first: str = "fairlock doctor",
        row: str = "",
    ) -> None:
        """Makes an alarm that any one of the last periods makes fire; silence is good news.

        `first` is what to do first; commands get the table. `row` is that of the runbook, by
        default with the alarm's name.
        """
        if threshold is None:
            return
        if isinstance(threshold, Duration):
            threshold = int(threshold.to_milliseconds())
        if first.startswith("fairlock "):
            first += f" --table {self._table_name}"
        alarm = cloudwatch.Alarm(
            self,
            name.replace("/", "∕"),  # noqa: RUF001 - a slash that CDK takes, and no name in ASCII has
            metric=metric,
            threshold=threshold,
            evaluation_periods=_PERIODS_OF_A_WAIT if name == MetricName.CURRENT_WAIT else 1,
            datapoints_to_alarm=1,
            comparison_operator=_AT_LEAST,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=(
                f"Fairlock: {description}\nFirst: {first}\n"
                f"Then: {row or name} in {documented('runbook.md')}"
            ),
        )
        if self._action is not None:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)
        self._alarms[name] = alarm


_WHO_WAITS: Final = "fairlock ls --waiting"
_AT_LEAST: Final = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_ANY: Final = "*"
_WATCH_EVERY: Final = Duration.minutes(5)
_WATCH_SECONDS: Final = 240
"""100,000 locks take about half of it, with 256 MB. The next run begins after five minutes."""
_MOST_WATCHED: Final = 20
_LONGEST_WATCHED: Final = 254
"""With a star the 255 characters that CDK takes of the value of a dimension."""
_LONGEST_LIST: Final = 3_000
"""Of the 4 KB that Lambda takes of all variables of a function."""


def _check_dashboard_name(name: object) -> None:
    if name is None or (isinstance(name, str) and Token.is_unresolved(name)):
        return
    is_name = isinstance(name, str) and _DASHBOARD_NAME.fullmatch(name) is not None
    rule = "must be 1 to 255 letters, digits, hyphens and underscores, or None"
    require("dashboard_name", is_name, rule, name)


def _check_watched(watch: Sequence[str]) -> None:
    rule = (
        f"must be a list of at most {_MOST_WATCHED} different names of locks in ASCII, such as "
        "'deploy/production', or beginnings with a star, 'deploy/*', with at most "
        f"{_LONGEST_WATCHED} characters each and {_LONGEST_LIST:,} together"
    )
    is_list = isinstance(watch, list | tuple) and len(watch) <= _MOST_WATCHED
    for name in watch if is_list else [watch]:
        plain = name.removesuffix(_ANY) if isinstance(name, str) else "ä"
        is_name = LOCK_NAME.allows(plain or "x") and plain.isascii() and _ANY not in plain
        is_name = is_name and len(plain) <= _LONGEST_WATCHED
        require("watch", is_list and name and is_name and watch.count(name) == 1, rule, name)
    require("watch", len(json.dumps(list(watch))) <= _LONGEST_LIST, rule, f"{len(watch)} names")
