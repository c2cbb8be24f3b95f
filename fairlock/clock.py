"""Time, passed in, so that no test sleeps.

The monotonic clock measures our own leases and our waiting, because it never jumps. The wall clock
decides nothing: see `fairlock/aws/aws_clock.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Final, Protocol, overload

Seconds = float | timedelta
"""A length of time, as callers of the Python API may give it."""


@overload
def in_seconds(length: Seconds) -> float: ...


@overload
def in_seconds(length: Seconds | None) -> float | None: ...


def in_seconds(length: Seconds | None) -> float | None:
    """The number of seconds. What is no timedelta stays as it is, for the rule of its field."""
    return length.total_seconds() if isinstance(length, timedelta) else length


class Alarm(Protocol):
    """A wait that another thread may end."""

    def wait(self, seconds: float) -> None:
        """Lets that much time pass, or less: until `ring` is called, even if that was before."""
        ...

    def ring(self) -> None:
        """Ends the wait that is under way, or else the next one."""
        ...


class Clock(Protocol):
    """What Fairlock needs to know of time."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, as good as this machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow; the origin means nothing."""
        ...

    def wait(self, seconds: float) -> None:
        """Lets that much time pass."""
        ...

    def alarm(self) -> Alarm:
        """A new alarm for one waiter."""
        ...


class ThreadAlarm:
    """A wait of one thread that another thread may end, or a signal handler in any thread.

    A `threading.Event` would not do: it has a mutex, and a signal handler that sets the event for
    which its own thread waits may wait for that mutex for ever.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def wait(self, seconds: float) -> None:
        """See `Alarm`."""
        with suppress(Empty):
            self._rings.get(timeout=max(0.0, seconds))

    def ring(self) -> None:
        """See `Alarm`."""
        self._rings.put(None)


class SystemClock:
    """The clock of this machine."""

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def alarm(self) -> Alarm:
        """An alarm for a thread."""
        return ThreadAlarm()


def _find_clock_since_boot() -> Callable[[], float]:
    if sys.platform == "linux":
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # There time.monotonic() stops during sleep, this one does not.
        return lambda: time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic


_seconds_since_boot: Final = _find_clock_since_boot()


class BootClock(SystemClock):
    """The clock of this machine for leases: it also runs while the machine sleeps.

    On Linux `time.monotonic` stands still while the machine is suspended (or a container's host
    is), and so would a lease measured by it: the holder would wake up and find its lease in order.
    """

    def monotonic(self) -> float:
        """Seconds since the machine was started, suspension included."""
        return _seconds_since_boot()
