"""The clock of a process, which may be wrong."""

from __future__ import annotations

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
