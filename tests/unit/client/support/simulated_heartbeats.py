"""Heartbeats in simulated time: the real schedule and the real heartbeats, but no threads."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlock import LockClient
from fairlock.client.heartbeats import Heartbeats, ScheduledHeartbeat
from tests.unit.client.support.doubles import EventfulClock


class SimulatedHeartbeats(Heartbeats):
    """Begins each heartbeat at its moment, one after the other, while time is passed by hand."""

    def _start(self) -> None:
        """No threads."""

    def _begin(self, scheduled: ScheduledHeartbeat) -> None:
        self._send(scheduled)

    def pass_time(self, clock: EventfulClock, seconds: float) -> None:
        """Lets time pass, with everything that is planned, and all heartbeats in it."""
        ends_at = clock.monotonic() + seconds
        while (now := clock.monotonic()) < ends_at:
            for scheduled in self._schedule.due(now):
                self._begin(scheduled)
            moment = min(self._schedule.next_at(), ends_at)
            clock.wait(max(moment - now, 0.001))
        for scheduled in self._schedule.due(clock.monotonic()):
            self._begin(scheduled)


@dataclass
class Beating:
    """A client whose heartbeats happen in simulated time."""

    locks: LockClient
    clock: EventfulClock
    told: list[str] = field(default_factory=list)

    def pass_time(self, seconds: float) -> None:
        heartbeats = self.locks._services.heartbeats  # noqa: SLF001 - they are simulated
        assert isinstance(heartbeats, SimulatedHeartbeats)
        heartbeats.pass_time(self.clock, seconds)
