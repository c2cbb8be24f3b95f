"""The clocks of a process: off by a constant, drifting, set again; true only by chance.

What `Clock` promises is kept: the monotonic clock only grows, and counts suspension (BootClock).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
