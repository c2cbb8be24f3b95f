"""Clocks of single processes, each wrong in its own way about a true time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairlock.testing.manual_clock import ManualClock


@dataclass
class WrongClock:
    """A view of a clock that others use as well: the wall clock is ahead, and waits are noted."""

    true: Any = field(default_factory=ManualClock)
    skew_ms: int = 0
    waits: list[float] = field(default_factory=list)

    def wall_ms(self) -> int:
        return int(self.true.wall_ms()) + self.skew_ms

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.true.wait(seconds)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is as with the true clock
        return getattr(self.true, name)

    @property
    def __class__(self) -> Any:  # noqa: ANN401 - fake clients take no clock but their own kind
        return type(self.true)

    @__class__.setter
    def __class__(self, _kind: object) -> None:
        """Stays as it is."""


class DriftingClock:
    """Reads a true time, in seconds: the wall clock is off, the monotonic one drifts."""

    def __init__(
        self, now: Callable[[], float], *, drift: float, offset: float = 0.0, origin: float = 0.0
    ) -> None:
        self._now = now
        self.drift, self.offset, self.origin = drift, offset, origin

    def wall_ms(self) -> int:
        return round((self._now() + self.offset) * 1000)

    def monotonic(self) -> float:
        return (self._now() - self.origin) * self.drift

    def true_time(self, monotonic: float) -> float:
        """When that reading comes."""
        return monotonic / self.drift + self.origin
