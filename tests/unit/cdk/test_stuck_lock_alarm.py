"""What CloudWatch would make of an alarm, from its template and from lines that functions print.

It knows what these alarms use: one metric with a plain statistic, periods without a value that
count as good, and as many bad ones as `DatapointsToAlarm` says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk.assertions import Template

from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.guard.service_calls import divide_wait
from fairlock.clock import SystemClock
from fairlock.wire.rules import DEFAULT_FALLBACK_SECONDS, DEFAULT_MAX_WAIT_SECONDS
from lambdas import acquire, heartbeat, release, runtime
from tests.support import LambdaContextStub
from tests.support.store_bench import FakeWorkflows

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


# The alarm of `LockMonitoring` fires while a lock is stuck, by what the functions print.

CONTEXT = LambdaContextStub()
FALLBACK_SECONDS: Final = 300
LATE_SECONDS: Final = 1
"""By which a guard asks later than its period each time."""
THRESHOLD_MINUTES: Final = 30
LOCK = {"lock_name": "customer/1"}
EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
HOLDER = {**LOCK, "owner_id": "holder-0123456789", "lease_seconds": 3600}
QUEUED = {
    **LOCK,
    "owner_id": "waiter-0123456789",
    "task_token": "token",
    "execution_arn": EXECUTION,
    "fallback_seconds": FALLBACK_SECONDS,
    "lease_seconds": 3600,
}


class Now:
    """The time of the functions and of their metrics, which the test sets."""

    def __init__(self) -> None:
        self.seconds = 1_900_000_000.0

    def wall_ms(self, _clock: object = None) -> int:
        return int(self.seconds * 1000)

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeWorkflows:
    engine = FakeWorkflows()
    for name in ("wake_waiter", "describe"):
        monkeypatch.setattr(f"fairlock.aws.executions.StepFunctions.{name}", getattr(engine, name))
    return engine


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    now = Now()
    monkeypatch.setattr(SystemClock, "wall_ms", lambda _self: now.wall_ms())
    return now


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Json, str]]:
    """Two of one account."""
    return {
        name: watched_service(App(outdir=str(tmp_path_factory.mktemp(name))), name)
        for name in ("Dev", "Prod")
    }


@pytest.fixture(scope="module")
def alarm(services: dict[str, tuple[Json, str]]) -> Json:
    return services["Prod"][0]


def watched_service(app: App, name: str) -> tuple[Json, str]:
    """The alarm of a stack with a service, and what the service's functions call themselves."""
    stack = Stack(app, name)
    locks = LockService(stack, "Locks", reaper=False)
    wait = Duration.minutes(THRESHOLD_MINUTES)
    LockMonitoring(stack, "Monitoring", service=locks, alarms=LockAlarms(current_wait=wait))
    template = Template.from_stack(stack)
    [alarm] = [
        each["Properties"]
        for each in template.find_resources("AWS::CloudWatch::Alarm").values()
        if each["Properties"].get("MetricName") == "CurrentWait"
    ]
    [told] = {
        json.dumps(each["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"])
        for each in template.find_resources("AWS::Lambda::Function").values()
    }
    [_, [stack_name, place]] = json.loads(told)["Fn::Join"]
    assert stack_name == {"Ref": "AWS::StackName"}
    return dict(alarm), f"{stack.stack_name}{place}"


class Run:
    """Callers of the functions, and what CloudWatch has of them."""

    def __init__(self, alarm: Json, now: Now, capsys: pytest.CaptureFixture[str]) -> None:
        self.alarm, self.now, self.capsys = alarm, now, capsys
        self.data: list[tuple[float, float]] = []

    def call(self, handler: Any, request: Json) -> Json:  # noqa: ANN401 - a handler
        answer: Json = handler(dict(request), CONTEXT)
        lines = self.capsys.readouterr().out.splitlines()
        # The functions' library stamps the lines with the time of this machine.
        self.data += [(self.now.seconds, value) for _, value in data_of(self.alarm, lines)]
        return answer

    def release(self, owner: Json) -> None:
        request = {name: owner[name] for name in ("lock_name", "owner_id")}
        assert self.call(release.handler, request)["released"]

    def fires(self) -> bool:
        return fires(self.alarm, self.data, at=self.now.seconds)

    def ask(self, request: Json, *, minutes: float, period_seconds: float) -> list[bool]:
        """Asks again and again; whether the alarm fires, looked at once a minute."""
        seen, asked_at = [], self.now.seconds - period_seconds
        for _ in range(round(minutes)):
            if self.now.seconds >= asked_at + period_seconds:
                self.call(heartbeat.handler, HOLDER)
                assert self.call(acquire.handler, request)["acquired"] is False
                asked_at = self.now.seconds
            seen.append(self.fires())
            self.now.advance(60)
        return seen


@pytest.fixture(autouse=True)
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions are those of the service that is watched."""
    run_by(monkeypatch, "Prod/Locks")


def run_by(monkeypatch: pytest.MonkeyPatch, service_name: str) -> None:
    """Lets the functions print as those of this service do."""
    monkeypatch.setattr(runtime.metrics.provider, "service", service_name)


@pytest.fixture
def run(alarm: Json, now: Now, capsys: pytest.CaptureFixture[str]) -> Run:
    run = Run(alarm, now, capsys)
    run.call(acquire.handler, HOLDER)
    return run


@pytest.mark.usefixtures("lambda_environment", "engine")
@pytest.mark.parametrize("polls", [False, True])
def test_the_alarm_fires_while_a_lock_is_stuck_and_is_over_soon_after(
    run: Run, now: Now, *, polls: bool
) -> None:
    polling = {**LOCK, "owner_id": "poller-0123456789", "waiting_since_ms": now.wall_ms()}
    request, period = (polling, 60) if polls else (QUEUED, FALLBACK_SECONDS + LATE_SECONDS)
    seen = run.ask(request, minutes=75, period_seconds=period)
    first = seen.index(True)
    assert THRESHOLD_MINUTES <= first <= THRESHOLD_MINUTES + 6
    assert all(seen[first:])  # Also in periods in which no one asked.
    run.release(HOLDER)
    now.advance(15 * 60)
    assert not run.fires()


@pytest.mark.usefixtures("lambda_environment", "engine")
def test_the_alarm_does_not_fire_when_turns_are_short_however_many_wait(run: Run, now: Now) -> None:
    holder = HOLDER
    for number in range(12):
        waiter = {**QUEUED, "owner_id": f"waiter-{number}-0123456789"}
        run.call(acquire.handler, waiter)
        now.advance(300)
        run.call(acquire.handler, waiter)
        assert not run.fires()
        run.release(holder)
        holder = waiter


@pytest.mark.usefixtures("lambda_environment", "engine")
def test_the_wait_until_the_grant_says_nothing_while_a_lock_is_stuck(
    alarm: Json, now: Now, capsys: pytest.CaptureFixture[str]
) -> None:
    """The negative control: the same alarm over the metric that a hand-off emits."""
    run = Run({**alarm, "MetricName": "WaitTime"}, now, capsys)
    run.call(acquire.handler, HOLDER)
    assert not any(run.ask(QUEUED, minutes=75, period_seconds=FALLBACK_SECONDS + LATE_SECONDS))
    run.release(HOLDER)
    assert run.fires()


@pytest.mark.usefixtures("lambda_environment", "engine")
@pytest.mark.parametrize("waiting_since_ms", [1_577_836_800_000, 4_000_000_000_000])
def test_a_caller_that_polls_raises_no_alarm_by_an_absurd_begin_of_its_wait(
    run: Run, waiting_since_ms: int
) -> None:
    polling = {**LOCK, "owner_id": "poller-0123456789", "waiting_since_ms": waiting_since_ms}
    assert not any(run.ask(polling, minutes=3, period_seconds=60))


@pytest.mark.usefixtures("lambda_environment", "engine")
def test_a_waiter_raises_no_alarm_by_what_it_says_of_its_wait(run: Run, now: Now) -> None:
    """The service knows since when it is in the queue."""
    an_hour_ago = now.wall_ms() - 3_600_000
    assert not any(
        run.ask({**QUEUED, "waiting_since_ms": an_hour_ago}, minutes=3, period_seconds=60)
    )


@pytest.mark.usefixtures("lambda_environment", "engine")
def test_the_log_line_of_a_wait_names_the_lock_and_tells_how_long(
    run: Run, now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[Json] = []
    monkeypatch.setattr(
        runtime.logger, "info", lambda message, extra: lines.append({"message": message, **extra})
    )
    run.call(acquire.handler, QUEUED)
    now.advance(90)
    run.call(acquire.handler, QUEUED)
    assert [(line["message"], line["lock_name"], line["waited_ms"]) for line in lines] == [
        ("queued", "customer/1", 0),
        ("queued", "customer/1", 90_000),
    ]


@pytest.mark.usefixtures("lambda_environment", "engine")
@pytest.mark.parametrize("holds", ["Dev", "Prod"])
def test_the_stuck_lock_of_one_service_fires_the_alarm_of_this_service_alone(
    now: Now,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    services: dict[str, tuple[Json, str]],
    holds: str,
) -> None:
    """Two services of one account. Each is the other's control."""
    assert {name: called for name, (_, called) in services.items()} == {
        "Dev": "Dev/Locks",
        "Prod": "Prod/Locks",
    }
    run_by(monkeypatch, services[holds][1])
    handlers = ((acquire.handler, HOLDER), (acquire.handler, QUEUED))
    for handler, request in handlers:
        handler(dict(request), CONTEXT)
    now.advance(40 * 60)
    handlers_again = ((heartbeat.handler, HOLDER), (acquire.handler, QUEUED))
    capsys.readouterr()
    for handler, request in handlers_again:
        handler(dict(request), CONTEXT)
    lines = capsys.readouterr().out.splitlines()
    fired = {
        name
        for name, (alarm, _) in services.items()
        if fires(
            alarm,
            [(now.seconds, value) for _, value in data_of(alarm, lines)],
            at=now.seconds,
        )
    }
    assert fired == {holds}


def test_by_default_a_guard_has_told_of_a_wait_that_is_too_long_before_it_gives_up() -> None:
    """At the end of its last period it leaves, and tells nothing."""
    periods = divide_wait(DEFAULT_MAX_WAIT_SECONDS, fallback_seconds=DEFAULT_FALLBACK_SECONDS)
    last_told_seconds = periods.total_seconds - periods.seconds
    threshold = LockAlarms().current_wait
    assert threshold is not None
    assert threshold.to_seconds() <= last_told_seconds
