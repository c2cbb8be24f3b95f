"""What may go wrong in a run, each with its share or its span. The sum of all is the weather."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.simulation.engine import Engine, Process, Sleepers
from tests.support.clocks import DriftingClock


@dataclass(frozen=True, slots=True)
class ClockErrors:
    """How wrong clocks are; each process draws its own, either way.

    Attributes:
        wall_seconds: of the wall clocks. AWS refuses machines that are off by 5 minutes.
        drift: the share by which monotonic clocks run too fast or too slowly.
        set_every: seconds between two moments at which a wall clock is set to another wrong time;
            the mean.
    """

    wall_seconds: float = 0.0
    drift: float = 0.0
    set_every: float = math.inf


class NodeClock(DriftingClock):
    """The two clocks of one process, and its waiting; true is AWS's time."""

    def __init__(self, engine: Engine, errors: ClockErrors, process: Process) -> None:
        self._engine, self._errors, self.process = engine, errors, process
        super().__init__(
            lambda: engine.now,
            drift=1 + engine.random.uniform(-errors.drift, errors.drift),
            origin=engine.now - engine.random.random() * 1_000,
        )
        self._set()

    def _set(self) -> None:
        random, most = self._engine.random, self._errors.wall_seconds
        self.offset = random.uniform(-most, most)
        every = self._errors.set_every
        # Looked at when it is asked: an event for each clock would never let a world end.
        later = random.expovariate(1 / every) if every < math.inf else every
        self._set_at = self._engine.now + later

    def wall_ms(self) -> int:
        if self._engine.now >= self._set_at:
            self._set()
        return super().wall_ms()

    def wait(self, seconds: float) -> None:
        self._engine.wait(max(0.0, seconds) / self.drift)

    def alarm(self) -> SimAlarm:
        return SimAlarm(self.drift)


class SimAlarm:
    """A wait of one thread that another one may end."""

    def __init__(self, drift: float) -> None:
        self._drift, self._sleepers = drift, Sleepers()
        self._has_rung = False

    def wait(self, seconds: float) -> None:
        if not self._has_rung:
            self._sleepers.wait(max(0.0, seconds) / self._drift)
        self._has_rung = False

    def ring(self) -> None:
        self._has_rung = True
        self._sleepers.wake()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Between a process and DynamoDB; shares are of requests.

    Attributes:
        lost_requests: never arrive.
        lost_replies: are done, and no one hears of it.
        late_replies: come late, by up to `late_seconds`.
        late_requests: arrive late, by up to `late_seconds`.
        copies: land once more, up to `late_seconds` after the first time.
        front_ends: seconds by which the front ends' clocks differ from AWS's time, either way.
    """

    lost_requests: float = 0.0
    lost_replies: float = 0.0
    late_replies: float = 0.0
    late_requests: float = 0.0
    copies: float = 0.0
    late_seconds: float = 10.0
    front_ends: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """In DynamoDB itself.

    Attributes:
        server_errors: the share of requests that are answered with a 500; half of them were done.
        throttles: the share that is refused, beside those above the units of a partition.
        partitions: how many partitions the table has; a new one has 4.
        write_units: of a partition, a second.
        read_units: same.
        slow_units: those of partition 0, if it has fewer, of either kind.
        outages: spans, in seconds from the beginning, in which no request is answered.
    """

    server_errors: float = 0.0
    throttles: float = 0.0
    partitions: int = 4
    write_units: int = 1_000
    read_units: int = 3_000
    slow_units: int | None = None
    outages: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What happens to client processes; each span is drawn again, around its mean.

    Attributes:
        killed: the share that dies in each hour; a fresh process goes on with its turns.
        suspended: the share that is suspended in each hour.
        suspended_seconds: for how long, at most.
    """

    killed: float = 0.0
    suspended: float = 0.0
    suspended_seconds: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaFaults:
    """In Lambda; shares are of the requests that handlers send.

    Attributes:
        kills: the process is killed at this request, before or after it arrives.
        stalls: the process stands still before this request, for up to `stall_seconds`.
        taken: spans, in seconds from the beginning, and how many invocations of other functions run
            in them.
    """

    kills: float = 0.0
    stalls: float = 0.0
    stall_seconds: float = 25.0
    taken: tuple[tuple[float, float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFaults:
    """Between the services; shares are of status events, SQS's messages and pushes.

    Attributes:
        lost: events that never come.
        lost_spans: seconds from the beginning in which all events are lost.
        late: events that come late, by up to `late_seconds`.
        twice: events and messages that come a second time.
        lost_pushes: answers to task tokens that fail for good.
    """

    lost: float = 0.0
    lost_spans: tuple[tuple[float, float], ...] = ()
    late: float = 0.0
    late_seconds: float = 3_600.0
    twice: float = 0.0
    lost_pushes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All of them."""

    machines: Machines = field(default_factory=Machines)
    network: Network = field(default_factory=Network)
    database: Database = field(default_factory=Database)
    functions: LambdaFaults = field(default_factory=LambdaFaults)
    events: EventFaults = field(default_factory=EventFaults)
    clocks: ClockErrors = field(default_factory=lambda: ClockErrors(wall_seconds=0.05, drift=1e-4))
