"""Lambda: execution environments that run the real handlers, and what goes wrong with them.

Sources, all of the AWS Lambda developer guide: "Understanding Lambda function scaling" (1,000
concurrent executions an account; each function may add 1,000 environments every 10 seconds; above
either, a request is answered with 429), "Lambda execution environment lifecycle" (one request at a
time in an environment, which stays for some minutes; a time-out or a crash resets it), "Error
handling and automatic retries" (the errors that a caller gets). How long a cold start takes was
measured on our own functions (docs/performance.md).

A handler runs whole, but for Powertools' decorators, which measure and log. What it finds in its
process (its clock, its clients, what it has learned of AWS's time) belongs to the environment that
runs it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType

from tests.simulation.engine import START, Bucket, Process, Quota
from tests.simulation.faults import NodeClock
from tests.simulation.versions import TODAY, Version, recorded

if TYPE_CHECKING:
    from tests.simulation.world import World

Json = dict[str, Any]
PLACE: Final = "us-east-1:123456789012"
TIMEOUT_SECONDS: Final = float(recorded()["reaper"]["function timeout"])
_ACCOUNT: Final = 1_000
_GROWTH: Final = 1_000
_GROWTH_SECONDS: Final = 10.0
_COLD_SECONDS: Final = 0.45
_COLD_SPREAD: Final = 0.3
_OVERHEAD_SECONDS: Final = 0.004
_KEPT_SECONDS: Final = 600.0
_KILLED_WITHIN_SECONDS: Final = 0.012
"""A request and its answer take about 8 ms: the process dies before, between or after."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an invocation came to: the handler's answer, or the name of its error and the text."""

    answer: Any = None
    error: str = ""
    cause: str = ""


Done = Callable[[Outcome], object]
Handler = Callable[[Json, Any], Json]


def bare(handler: Any) -> Handler:  # noqa: ANN401 - a decorated function
    """A handler without Powertools' decorators, which log and send metrics."""
    while handler.__code__.co_name != "reporting" and hasattr(handler, "__wrapped__"):
        handler = handler.__wrapped__
    found: Handler = handler
    return found


class Environment(Process):
    """An execution environment: a process that serves one request at a time.

    Attributes:
        aws_clock: what it has learned of AWS's time.
        batch: what Powertools notes of a batch; global in a real process.
        invocation: the number of the one that runs.
        idle_since: when the last one ended.
    """

    def __init__(
        self, world: World, name: str, clients: Mapping[str, Any], version: Version
    ) -> None:
        super().__init__(world.engine, name)
        self.clock = NodeClock(world.engine, world.faults.clocks, self)
        self.aws_clock = version.load("lambdas.runtime").AwsClock(self.clock)
        sdk, self._wire, self._faults = world.sdk(), world.wire, world.faults.functions
        if self._faults.kills or self._faults.stalls:
            sdk.before = self._suffers
        self.clients: dict[str, Any] = {"dynamodb": sdk, **clients}
        self.batch = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
        self.invocation = 0
        self.idle_since = 0.0
        self.ended: Callable[[Outcome], object] = lambda _outcome: None

    def _suffers(self, request: Mapping[str, Any]) -> None:
        """Before a request it may stand still, and it may be killed at any moment of it."""
        random, wire, faults = self.engine.random, self._wire, self._faults
        if faults.stalls and random.random() < faults.stalls:
            wire.hit(request)
            wire.stalled += 1
            self.engine.wait(random.random() * faults.stall_seconds)
            wire.stalled -= 1  # Else the process was ended before it sent anything.
        if random.random() < faults.kills:
            later = random.random() * _KILLED_WITHIN_SECONDS
            self.engine.after(later, self.die, self.invocation, "Runtime.ExitError")

    def die(self, invocation: int, error: str) -> None:
        """Ends the process and what it does, if that invocation still runs."""
        if self.invocation != invocation or not self.is_alive:
            return
        ended, self.ended = self.ended, lambda _outcome: None
        self.kill()
        ended(Outcome(error=error, cause="the process ended"))


@dataclass
class _Function:
    """One function: its idle environments, and how many it may add."""

    handler: Handler
    version: Version
    growth: Bucket
    idle: list[Environment] = field(default_factory=list)
    made: int = 0


class Functions:
    """The account's functions; each environment has these clients beside DynamoDB's.

    Attributes:
        running: how many invocations run.
        counts: by name: `acquire`, and beside it `cold`, `throttled`, errors.
        route: which function serves a call, as a weighted alias decides it.
    """

    def __init__(self, world: World, clients: Mapping[str, Any], scale: float = 1.0) -> None:
        self._world, self._engine, self._faults = world, world.engine, world.faults.functions
        if self._faults.stalls:
            world.judge.stall_seconds = self._faults.stall_seconds
        self._account = max(10, round(_ACCOUNT * scale))
        growth = max(10, round(_GROWTH * scale))
        self._growth = Quota(growth, growth / _GROWTH_SECONDS)
        self._clients = clients
        self._functions: dict[str, _Function] = {}
        self.running = 0
        self.counts: Counter[str] = Counter()
        self.route: Callable[[str], str] = lambda name: name
        for name, handler in TODAY.handlers.items():
            self.add(name, handler)

    def add(self, name: str, handler: Handler, version: Version = TODAY) -> None:
        growth = Bucket(self._engine, self._growth)
        self._functions[name] = _Function(bare(handler), version, growth)

    def invoke(self, name: str, event: Json, done: Done) -> None:
        """Runs a function, or refuses with the error of a 429; `done` gets what it came to."""
        engine, counts = self._engine, self.counts
        name = self.route(name)
        counts[name] += 1
        environment, cold = self._environment(name)
        if environment is None:
            counts["throttled"] += 1
            refused = Outcome(error="Lambda.TooManyRequestsException", cause="Rate Exceeded.")
            engine.after(_OVERHEAD_SECONDS, done, refused)
            return
        self.running += 1
        environment.invocation += 1
        number = environment.invocation
        begins = engine.now + _OVERHEAD_SECONDS + cold
        ends = begins + TIMEOUT_SECONDS
        handler = self._functions[name].handler

        def ended(outcome: Outcome) -> None:
            environment.invocation += 1
            self.running -= 1
            if environment.is_alive:
                environment.idle_since = engine.now
                self._functions[name].idle.append(environment)
            if outcome.error:
                counts[outcome.error] += 1
            engine.after(_OVERHEAD_SECONDS, done, outcome)

        environment.ended = ended
        context = SimpleNamespace(
            invoked_function_arn=f"arn:aws:lambda:{PLACE}:function:{name}",
            get_remaining_time_in_millis=lambda: int((ends - engine.now) * 1000),
        )
        engine.at(begins, environment.start, lambda: _run(environment, handler, event, context))
        engine.at(ends, environment.die, number, "Sandbox.Timedout")

    def _environment(self, name: str) -> tuple[Environment | None, float]:
        """One that is free, and how long it takes to start; none if there may be no more."""
        engine, function = self._engine, self._functions[name]
        since = engine.now - START
        taken = sum(number for begins, ends, number in self._faults.taken if begins <= since < ends)
        if self.running + taken >= self._account:
            return None, 0.0
        while function.idle:
            found = function.idle.pop()
            if found.is_alive and found.idle_since > engine.now - _KEPT_SECONDS:
                return found, 0.0
        if not function.growth.take():
            return None, 0.0
        function.made += 1
        self.counts["cold"] += 1
        label = f"{name} {function.made}"
        made = Environment(self._world, label, self._clients, function.version)
        return made, engine.random.lognormvariate(0, _COLD_SPREAD) * _COLD_SECONDS


def _run(environment: Environment, handler: Handler, event: Json, context: object) -> None:
    try:
        # Each side has a copy of its own, as what goes over the wire.
        outcome = Outcome(answer=handler(json.loads(json.dumps(event)), context))
    except Exception as error:  # noqa: BLE001 - as Lambda's runtime does
        outcome = Outcome(error=type(error).__name__, cause=str(error))
    ended, environment.ended = environment.ended, lambda _outcome: None
    ended(outcome)
