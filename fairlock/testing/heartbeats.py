"""Heartbeats without threads: each is sent at its moment, while a `ManualClock` lets time pass."""

from __future__ import annotations

import math

from fairlock.client.heartbeat_schedule import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.heartbeats import Heartbeats
from fairlock.testing.clock import ManualClock
from fairlock.testing.in_line import CallbacksInLine


def no_jitter() -> float:
    """Stands in for `random.random`, so that a test happens in the same way each time."""
    return 0.5


class ManualHeartbeats(Heartbeats):
    """Renews locks as the clock is moved.

    Args:
        clock: the present.
        most_at_once: how many heartbeats may be under way at a time.
        callbacks: hold calls back during a heartbeat.
    """

    def __init__(
        self, clock: ManualClock, *, most_at_once: int, callbacks: CallbacksInLine
    ) -> None:
        super().__init__(clock, most_at_once=most_at_once)
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once, random=no_jitter)
        self._callbacks = callbacks
        clock.add(self)

    def next_at(self) -> float:
        """See `Timed`."""
        return math.inf if self._closed else self._schedule.next_at()

    def do_due(self) -> None:
        """See `Timed`."""
        if self._closed:
            return
        for scheduled in self._schedule.due(self._clock.monotonic()):
            self._begin(scheduled)

    def _start(self) -> None:
        """No thread."""

    def _begin(self, scheduled: ScheduledHeartbeat) -> None:
        with self._callbacks.held_back():
            self._send(scheduled)
