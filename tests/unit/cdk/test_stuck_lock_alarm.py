"""The alarm of `LockMonitoring` fires while a lock is stuck, by what the functions print.

What CloudWatch would make of it is computed for what these alarms use: the maximum of one metric,
periods without a value that count as good, and as many bad ones as `DatapointsToAlarm` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from aws_cdk import Duration, Stack

from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.guard.service_calls import divide_wait
from fairlock.clock import SystemClock
from fairlock.testing import ManualClock
from fairlock.wire.rules import DEFAULT_FALLBACK_SECONDS, DEFAULT_MAX_WAIT_SECONDS
from lambdas import acquire, heartbeat, release, runtime
from tests.support import LambdaContextStub
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.store_bench import FakeWorkflows
from tests.unit.cdk.conftest import NewApp
from tests.unit.cdk.template import Json, flattened, properties, template_of

Datum = tuple[float, float]


def values_of(alarm: Json, lines: Iterable[str]) -> Iterator[float]:
    """The values of the alarm's metric among EMF lines."""
    wanted = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
    for line in map(json.loads, lines):
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            same = directive["Namespace"] == alarm["Namespace"]
            named = any(each["Name"] == alarm["MetricName"] for each in directive["Metrics"])
            dimensions = [{name: line[name] for name in names} for names in directive["Dimensions"]]
            if same and named and wanted in dimensions:
                yield from line[alarm["MetricName"]]


pytestmark = pytest.mark.usefixtures("lambda_environment")

CONTEXT = LambdaContextStub()
FALLBACK_SECONDS: Final = 300
LATE_SECONDS: Final = 1
"""By which a guard asks later than its period each time."""
THRESHOLD_MINUTES: Final = 30
SERVICE: Final = "Prod/Locks"
LOCK = {"lock_name": "customer/1"}
HOLDER = {**LOCK, "owner_id": "holder-0123456789", "lease_seconds": 3600}
POLLING = {**LOCK, "owner_id": "poller-0123456789"}
QUEUED = {
    **LOCK,
    "owner_id": "waiter-0123456789",
    "task_token": "token",
    "execution_arn": VALID_EXECUTION,
    "fallback_seconds": FALLBACK_SECONDS,
    "lease_seconds": 3600,
}


@pytest.fixture(scope="module")
def alarm(new_app: NewApp) -> Json:
    """That of a stack with a service, whose metrics only this service's functions emit."""
    stack = Stack(new_app(), "Prod")
    locks = LockService(stack, "Locks", reaper=False)
    wait = Duration.minutes(THRESHOLD_MINUTES)
    LockMonitoring(stack, "Monitoring", service=locks, alarms=LockAlarms(current_wait=wait))
    template = template_of(stack)
    alarms = properties(template, "AWS::CloudWatch::Alarm")
    [alarm] = [each for each in alarms if each.get("MetricName") == "CurrentWait"]
    assert alarm["Dimensions"] == [{"Name": "service", "Value": SERVICE}]
    for function in properties(template, "AWS::Lambda::Function"):
        name = function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        assert flattened(name) == SERVICE.replace("Prod", "<AWS::StackName>")
    return alarm


class Run:
    """Callers of the functions, and what CloudWatch has of them."""

    def __init__(self, alarm: Json, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
        self.alarm, self.clock, self.capsys = alarm, clock, capsys
        self.data: list[Datum] = []

    def call(self, handler: Any, request: Json) -> Json:  # noqa: ANN401 - a handler
        answer: Json = handler(dict(request), CONTEXT)
        lines = self.capsys.readouterr().out.splitlines()
        # The functions' library stamps the lines with the time of this machine.
        self.data += [(self.clock.monotonic(), value) for value in values_of(self.alarm, lines)]
        return answer

    def release(self, owner: Json) -> None:
        request = {name: owner[name] for name in ("lock_name", "owner_id")}
        assert self.call(release.handler, request)["released"]

    def fires(self) -> bool:
        alarm, period = self.alarm, float(self.alarm["Period"])
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert alarm["Statistic"] == "Maximum"
        first: float = self.clock.monotonic() // period - alarm["EvaluationPeriods"] + 1
        breaching = {at // period for at, value in self.data if value >= alarm["Threshold"]}
        return sum(number >= first for number in breaching) >= int(alarm["DatapointsToAlarm"])

    def ask(self, request: Json, *, minutes: float, period_seconds: float) -> list[bool]:
        """Asks again and again; whether the alarm fires, looked at once a minute."""
        seen, asked_at = [], self.clock.monotonic() - period_seconds
        for _ in range(round(minutes)):
            if self.clock.monotonic() >= asked_at + period_seconds:
                self.call(heartbeat.handler, HOLDER)
                assert self.call(acquire.handler, request)["acquired"] is False
                asked_at = self.clock.monotonic()
            seen.append(self.fires())
            self.clock.advance(60)
        return seen


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    """The functions are those of the service that is watched, at a time that the test sets."""
    monkeypatch.setattr(runtime.metrics.provider, "service", SERVICE)
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _self: clock.wall_ms())
    engine = FakeWorkflows()
    for name in ("wake_waiter", "describe"):
        monkeypatch.setattr(f"fairlock.aws.executions.StepFunctions.{name}", getattr(engine, name))


@pytest.fixture
def run(alarm: Json, clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> Run:
    run = Run(alarm, clock, capsys)
    run.call(acquire.handler, HOLDER)
    return run


@pytest.mark.parametrize("polls", [False, True])
def test_the_alarm_fires_while_a_lock_is_stuck_and_is_over_soon_after(
    run: Run, clock: ManualClock, *, polls: bool
) -> None:
    polling = {**POLLING, "waiting_since_ms": clock.wall_ms()}
    request, period = (polling, 60) if polls else (QUEUED, FALLBACK_SECONDS + LATE_SECONDS)
    seen = run.ask(request, minutes=75, period_seconds=period)
    first = seen.index(True)
    assert THRESHOLD_MINUTES <= first <= THRESHOLD_MINUTES + 6
    assert all(seen[first:])  # Also in periods in which no one asked.
    run.release(HOLDER)
    clock.advance(15 * 60)
    assert not run.fires()


def test_the_alarm_does_not_fire_when_turns_are_short(run: Run, clock: ManualClock) -> None:
    holder = HOLDER
    for number in range(12):
        waiter = {**QUEUED, "owner_id": f"waiter-{number}-0123456789"}
        run.call(acquire.handler, waiter)
        clock.advance(300)
        run.call(acquire.handler, waiter)
        assert not run.fires()
        run.release(holder)
        holder = waiter


def test_the_wait_until_the_grant_says_nothing_while_a_lock_is_stuck(run: Run) -> None:
    """The negative control: the same alarm over the metric that a hand-off emits."""
    run.alarm = {**run.alarm, "MetricName": "WaitTime"}
    assert not any(run.ask(QUEUED, minutes=75, period_seconds=FALLBACK_SECONDS + LATE_SECONDS))
    run.release(HOLDER)
    assert run.fires()


def test_a_caller_raises_no_alarm_by_an_absurd_begin_of_its_wait(run: Run) -> None:
    for asking, since_ms in (
        (POLLING, 1_577_836_800_000),  # 2020
        (POLLING, 4_000_000_000_000),  # 2096
        # An hour ago: the service knows since when it is in the queue.
        (QUEUED, 1_900_000_000_000 - 3_600_000),
    ):
        request = {**asking, "waiting_since_ms": since_ms}
        assert not any(run.ask(request, minutes=3, period_seconds=60))


def test_by_default_a_guard_has_told_of_a_wait_that_is_too_long_before_it_gives_up() -> None:
    """At the end of its last period it leaves, and tells nothing."""
    periods = divide_wait(DEFAULT_MAX_WAIT_SECONDS, fallback_seconds=DEFAULT_FALLBACK_SECONDS)
    last_told_seconds = periods.total_seconds - periods.seconds
    threshold = LockAlarms().current_wait
    assert threshold is not None
    assert threshold.to_seconds() <= last_told_seconds
