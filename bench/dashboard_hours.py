"""Four hours of a lock service for the picture of the dashboard: its functions, on a fake clock.

The handlers are the real ones, over a table in memory, and their metrics are the lines that they
print. What AWS itself would measure is counted here: invocations, and the write units of the table
by DynamoDB's rules. How long a function takes and how late a message arrives is assumed, near what
`bench` measures.
"""

from __future__ import annotations

import heapq
import io
import itertools
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from unittest import mock

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.clock import SystemClock
from fairlock.names import REAP_QUEUE_VARIABLE, TABLE_NAME_VARIABLE, MetricName
from fairlock.protocol.model import Grant
from lambdas import acquire, force_release, heartbeat, reap, release, runtime
from tests.support import LambdaContextStub
from tests.support.memory_tables import MeteredTable
from tests.support.store_bench import FakeWorkflows

HOURS: Final = 4
STUCK_FROM_SECONDS: Final = 6_000.0
STUCK_UNTIL_SECONDS: Final = 9_900.0
_CUSTOMERS: Final = 12
_SECONDS_BETWEEN: Final = 24.0
_HOLD_SECONDS: Final = (20.0, 150.0)
_FALLBACK_SECONDS: Final = 300
_START: Final = 1_900_000_800.0
_EXECUTION: Final = "arn:aws:states:us-east-1:123456789012:execution:billing"
_DURATIONS_MS: Final = {"Acquire": 34.0, "Heartbeat": 22.0, "Release": 41.0, "Reap": 95.0}
_HAND_OFF_MS: Final = 70.0
_DEATHS: Final = (2_400.0, 4_500.0, 12_000.0)

Key = tuple[str, str]
"""Of a metric: its name, and of AWS's own the function or the table that it is about."""
Data = dict[Key, list[tuple[float, float]]]
"""The values by metric, each with its second."""


@dataclass
class Hours:
    """The present, what is planned, and what was measured."""

    seconds: float = 0.0
    data: Data = field(default_factory=lambda: defaultdict(list))
    table: MeteredTable = field(default_factory=MeteredTable)
    random: Random = field(default_factory=lambda: Random(12))  # noqa: S311 - a simulation
    assumed: Random = field(default_factory=lambda: Random(7))  # noqa: S311 - same
    dead: set[str] = field(default_factory=set)
    _plans: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _order: Iterator[int] = field(default_factory=itertools.count)
    _sleepers: dict[str, Callable[[], None]] = field(default_factory=dict)

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Plans something."""
        heapq.heappush(self._plans, (seconds, next(self._order), action))

    def run(self) -> None:
        """Lets the hours pass."""
        while self._plans and self._plans[0][0] < HOURS * 3600:
            self.seconds, _, action = heapq.heappop(self._plans)
            action()

    def call(self, name: str, handler: Any, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - a handler, a request
        """Invokes a function, and notes what CloudWatch would have of it."""
        units, out = self.table.write_units, io.StringIO()
        with redirect_stdout(out):
            answer: dict[str, Any] = handler(request, LambdaContextStub())
        for line in filter(None, out.getvalue().splitlines()):
            parsed = json.loads(line)
            for metric in parsed["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
                self._note((metric["Name"], ""), *parsed[metric["Name"]])
        self._note(("Invocations", name), 1.0)
        self._note(("Errors", name), 0.0)
        self._note(("Throttles", name), 0.0)
        usual = _DURATIONS_MS.get(name, 30.0)
        self._note(("Duration", name), usual * self.assumed.lognormvariate(0, 0.4))
        self._note(("ConsumedWriteCapacityUnits", "Table"), float(self.table.write_units - units))
        return answer

    def sleep(self, token: str, wake: Callable[[], None]) -> None:
        """A workflow sleeps until its token is told."""
        self._sleepers[token] = wake

    def wake(self, token: str, _grant: Grant) -> Delivery:
        """What Step Functions does with a push."""
        self._sleepers.pop(token)()
        return Delivery.DELIVERED

    def _note(self, key: Key, *values: float) -> None:
        self.data[key] += [(self.seconds, value) for value in values]


class Workflow:
    """A guard of a customer's lock: acquires, works, releases."""

    def __init__(self, hours: Hours, number: int, customer: int) -> None:
        self.hours = hours
        self.lock = {"lock_name": f"customer/{customer}", "owner_id": f"guard-{number:010}"}
        self.token = f"token-{number}"
        self.asks = {
            **self.lock,
            "task_token": self.token,
            "execution_arn": f"{_EXECUTION}:{number}",
            "fallback_seconds": _FALLBACK_SECONDS,
        }
        self.has_lock = False
        self.works_until: float | None = None

    def ask(self) -> None:
        """The first request, and each one after a fallback period."""
        if self.has_lock:
            return
        self.hours.sleep(self.token, self.work)  # A grant comes by the token, also at once.
        self.hours.call("Acquire", acquire.handler, **self.asks)
        if not self.has_lock:
            self.hours.at(self.hours.seconds + _FALLBACK_SECONDS, self.ask)

    def work(self) -> None:
        """Works for a while, or until someone ends a work that hangs."""
        self.has_lock = True
        until = self.works_until or self.hours.seconds + self.hours.random.uniform(*_HOLD_SECONDS)
        self.hours.at(until, self.end)
        self.renew(until)

    def renew(self, until: float) -> None:
        """What keep_alive does."""
        due = self.hours.seconds + 20
        if due < until:
            self.hours.at(due, lambda: self.beat_then_renew(until))

    def beat_then_renew(self, until: float) -> None:
        """One heartbeat, and the next one, unless its execution has died."""
        if self.asks["execution_arn"] in self.hours.dead:
            return
        self.hours.call("Heartbeat", heartbeat.handler, **self.lock)
        self.renew(until)

    def end(self) -> None:
        """Releases; a work that hung was released by force before, and one that died is reaped."""
        if self.asks["execution_arn"] in self.hours.dead:
            return
        self.hours.call("Release", release.handler, **self.lock)


def simulate() -> Data:
    """The metrics of the hours: work comes and goes, and one lock is stuck for an hour."""
    hours = Hours()
    engine = FakeWorkflows(wakes=hours.wake)
    engine.runs = lambda arn: Execution(Liveness.OVER if arn in hours.dead else Liveness.RUNNING)
    with _surroundings(hours, engine):
        moments = itertools.accumulate(
            hours.random.expovariate(1 / _SECONDS_BETWEEN) for _ in itertools.count()
        )
        for number in itertools.count():
            moment = next(moments)
            if moment > HOURS * 3600:
                break
            workflow = Workflow(hours, number, customer=hours.random.randrange(_CUSTOMERS))
            hours.at(moment, workflow.ask)
        hangs = Workflow(hours, number=9_999, customer=3)
        hangs.works_until = STUCK_UNTIL_SECONDS + 60
        hours.at(STUCK_FROM_SECONDS, hangs.ask)
        hours.at(STUCK_UNTIL_SECONDS, lambda: _free(hours, hangs))
        for number, moment in enumerate(_DEATHS):
            dies = Workflow(hours, number=9_000 + number, customer=number)
            hours.at(moment, dies.ask)
            hours.at(moment + 60, lambda dies=dies: _die(hours, dies))  # type: ignore[misc]  # bound now
        hours.run()
    latency = (MetricName.HAND_OFF_LATENCY, "")
    hours.data[latency] = [
        (second, _HAND_OFF_MS * hours.assumed.lognormvariate(0, 0.5))
        for second, _ in hours.data[latency]
    ]
    return hours.data


def _die(hours: Hours, dies: Workflow) -> None:
    """An execution is stopped, and the event of it reaches the reaper."""
    hours.dead.add(str(dies.asks["execution_arn"]))
    message = {"execution_arn": dies.asks["execution_arn"], "redrives": 0, "second_pass": False}
    record = {"messageId": "1", "body": json.dumps(message), "eventSource": "aws:sqs"}
    hours.call("Reap", reap.handler, Records=[record])


def _free(hours: Hours, hangs: Workflow) -> None:
    """What the operator does who was told by the alarm."""
    name = hangs.lock["lock_name"]
    items = hours.table.inner.state(name)
    hours.call(
        "ForceRelease",
        force_release.handler,
        lock_name=name,
        fencing_token=int(items["fencing_token"]["N"]),
        requested_by="on call",
        reason="it hangs",
    )


@contextmanager
def _surroundings(hours: Hours, engine: FakeWorkflows) -> Iterator[None]:
    """The functions' table, their Step Functions and their clock."""
    calls = "fairlock.aws.executions.StepFunctions"
    runtime.logger.setLevel(logging.CRITICAL)

    def wall_ms(_clock: SystemClock) -> int:
        return round((_START + hours.seconds) * 1000)

    with (
        mock.patch.dict(os.environ, {TABLE_NAME_VARIABLE: "locks", REAP_QUEUE_VARIABLE: "queue"}),
        mock.patch("lambdas.reap_messages.send_message"),
        mock.patch("lambdas.reap_messages.hide_message"),
        mock.patch.object(runtime, "_client", return_value=hours.table),
        mock.patch.object(SystemClock, "wall_ms", wall_ms),
        mock.patch(f"{calls}.wake_waiter", engine.wake_waiter),
        mock.patch(f"{calls}.describe", engine.describe),
    ):
        yield
