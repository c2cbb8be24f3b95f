"""Dividing `max_wait` into equal periods, after each of which a waiter asks again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PAUSES_SECONDS: Final = range(1, 11)
"""A Retry of Step Functions pauses for a second at least. In a pause no push reaches a waiter."""
_LARGEST_MISS_SECONDS: Final = 2
_SHORTEST_SECONDS: Final = 5
_LATEST: Final = 20
_MOST_AFTER_RESTART: Final = 1000
"""At eleven events a period: less than half of an execution's history of 25,000 events."""


@dataclass(frozen=True, slots=True)
class FallbackPeriods:
    """`number` periods of `seconds` each, with a pause between each two."""

    number: int
    seconds: int
    pause_seconds: int

    @property
    def total_seconds(self) -> int:
        """How long the periods and the pauses between them last."""
        return self.number * (self.seconds + self.pause_seconds) - self.pause_seconds


def divide_wait(max_wait_seconds: int, *, fallback_seconds: int) -> FallbackPeriods:
    """Divides `max_wait_seconds` into equal periods of at most `fallback_seconds`, pause included.

    Whole seconds do not always come out even: these are the longest periods that, with some pause,
    miss the wait by two seconds at most. The tests show that there always are such periods.
    """
    if max_wait_seconds <= fallback_seconds:
        return FallbackPeriods(1, max_wait_seconds, min(_PAUSES_SECONDS))

    candidates = (
        FallbackPeriods(round((max_wait_seconds + pause) / (seconds + pause)), seconds, pause)
        for seconds in range(fallback_seconds, fallback_seconds // 10, -1)
        for pause in _PAUSES_SECONDS
        if seconds + pause <= fallback_seconds
    )
    return next(
        candidate
        for candidate in candidates
        if abs(candidate.total_seconds - max_wait_seconds) <= _LARGEST_MISS_SECONDS
    )


def period_after_restart(max_wait_seconds: int, *, fallback_seconds: int) -> FallbackPeriods:
    """One period of an acquisition that has begun anew, in the middle of its wait.

    A Retry cannot count the rest of a wait, so the time is looked at after each period. The last
    one ends a twentieth of the wait too late at most, or five seconds.
    """
    seconds = max(
        _SHORTEST_SECONDS,
        min(fallback_seconds, max_wait_seconds // _LATEST),
        max_wait_seconds // _MOST_AFTER_RESTART,
    )
    return FallbackPeriods(1, seconds, min(_PAUSES_SECONDS))
