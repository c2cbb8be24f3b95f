"""A clock that also runs while the machine sleeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final


def _find() -> Callable[[], float]:
    if sys.platform == "linux":
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # There time.monotonic() stops during sleep, this one does not.
        return lambda: time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic


_since_boot: Final = _find()


class BootClock:
    """The clock of this machine, for leases.

    On Linux `time.monotonic` stands still while the machine is suspended (or a container's host
    is), and so would a lease measured by it: the holder would wake up and find its lease in order.
    """

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since the machine was started, suspension included."""
        return _since_boot()

    def wait(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)
