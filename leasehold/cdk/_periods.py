"""Dividing `max_wait` into equal periods, after each of which a waiter asks again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

PAUSE_SECONDS: Final = 1
"""Between two periods; the shortest that a Retry of Step Functions can be told."""

_MOST_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Periods:
    """So many periods of so many seconds, with a pause between each two."""

    number: int
    seconds: int

    @property
    def total_seconds(self) -> int:
        """How long they last together."""
        return self.number * (self.seconds + PAUSE_SECONDS) - PAUSE_SECONDS


def divide(max_wait_seconds: int, *, fallback_seconds: int) -> Periods:
    """Equal periods of about `fallback_seconds` at most, which last as long as `max_wait_seconds`.

    Whole seconds do not always come out even: among some numbers of periods from the fewest possible
    upwards, the one that misses the least is taken. Up to 24 hours of five minutes it misses by one
    second at most.
    """
    span = max_wait_seconds + PAUSE_SECONDS
    fewest = max(1, math.ceil(span / (fallback_seconds + PAUSE_SECONDS)))
    candidates = (
        Periods(number, max(1, round(span / number) - PAUSE_SECONDS))
        for number in range(fewest, fewest + _MOST_TRIES)
    )
    return min(candidates, key=lambda periods: abs(periods.total_seconds - max_wait_seconds))
