"""Time, passed in, so that no test sleeps.

Wall time decides about leases that others wrote (with a tolerance); monotonic time measures our own
waiting, because it never jumps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What Leasehold needs to know of time."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, as good as this machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow; the origin means nothing."""
        ...

    def wait(self, seconds: float) -> None:
        """Lets that much time pass."""
        ...


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


def iso_utc(epoch_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, for instance `2030-01-31T09:15:00.250Z`."""
    moment = datetime.fromtimestamp(epoch_ms // 1000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ms % 1000:03d}Z"
