"""What may go wrong in a run, each with its share or its span. The sum of all is the weather."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from greenlet import getcurrent

from tests.simulation.engine import Engine, Process, Task


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


class NodeClock:
    """The two clocks of one process, and its waiting.

    Args:
        engine: knows the true time.
        errors: how wrong they may be.
        process: whose they are.
    """

    def __init__(self, engine: Engine, errors: ClockErrors, process: Process) -> None:
        self._engine, self._errors, self.process = engine, errors, process
        self.drift = 1 + engine.random.uniform(-errors.drift, errors.drift)
        self.origin = engine.now - engine.random.random() * 1_000
        self._set()

    def _set(self) -> None:
        random, most = self._engine.random, self._errors.wall_seconds
        self._offset = random.uniform(-most, most)
        every = self._errors.set_every
        # Looked at when it is asked: an event for each clock would never let a world end.
        later = random.expovariate(1 / every) if every < math.inf else every
        self._set_at = self._engine.now + later

    def wall_ms(self) -> int:
        if self._engine.now >= self._set_at:
            self._set()
        return round((self._engine.now + self._offset) * 1000)

    def monotonic(self) -> float:
        return self.elapsed() * self.drift

    def elapsed(self) -> float:
        """True seconds since its machine was started."""
        return self._engine.now - self.origin

    def true_time(self, monotonic: float) -> float:
        """When that reading comes, by AWS's time."""
        return monotonic / self.drift + self.origin

    def wait(self, seconds: float) -> None:
        self._engine.wait(max(0.0, seconds) / self.drift)

    def alarm(self) -> SimAlarm:
        return SimAlarm(self._engine, self.drift)


class SimAlarm:
    """A wait of one thread that another one may end."""

    def __init__(self, engine: Engine, drift: float) -> None:
        self._engine, self._drift = engine, drift
        self._waiting: tuple[Task, int] | None = None
        self._has_rung = False

    def wait(self, seconds: float) -> None:
        if not self._has_rung:
            me: Task = getcurrent()
            self._waiting = me, me.waits + 1
            self._engine.wait(max(0.0, seconds) / self._drift)
            self._waiting = None
        self._has_rung = False

    def ring(self) -> None:
        self._has_rung = True
        if self._waiting is not None:
            task, waits = self._waiting
            self._engine.wake(task, waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Between a process and DynamoDB; shares are of requests.

    Attributes:
        lost_requests: never arrive.
        lost_replies: are done, and no one hears of it.
        late_replies: come late, by up to `late_seconds`.
        late_requests: arrive late, by up to `late_seconds`.
        copies: land once more, up to `late_seconds` after the first time.
        late_seconds: see above.
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
class Faults:
    """All of them."""

    machines: Machines = field(default_factory=Machines)
    network: Network = field(default_factory=Network)
    database: Database = field(default_factory=Database)
    clocks: ClockErrors = field(default_factory=lambda: ClockErrors(wall_seconds=0.05, drift=1e-4))
