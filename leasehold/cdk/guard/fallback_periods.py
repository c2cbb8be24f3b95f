"""Dividing `max_wait` into equal periods, after each of which a waiter asks again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PAUSES_SECONDS: Final = range(1, 11)
"""A Retry of Step Functions pauses for a second at least. In a pause a waiter cannot be told."""
_LARGEST_MISS_SECONDS: Final = 2


@dataclass(frozen=True, slots=True)
class Periods:
    """So many periods of so many seconds, with a pause between each two."""

    number: int
    seconds: int
    pause_seconds: int

    @property
    def total_seconds(self) -> int:
        """How long they last together."""
        return self.number * (self.seconds + self.pause_seconds) - self.pause_seconds


def divide(max_wait_seconds: int, *, fallback_seconds: int) -> Periods:
    """Equal periods which last as long as `max_wait_seconds`, at most `fallback_seconds` each.

    The pause after a period counts too: a waiter asks again `fallback_seconds` after it last did,
    or sooner. Whole seconds do not always come out even: the longest periods are taken that, with
    some pause, miss by two seconds at most. The tests hold that there are some.
    """
    if max_wait_seconds <= fallback_seconds:
        return Periods(1, max_wait_seconds, min(_PAUSES_SECONDS))

    candidates = (
        Periods(round((max_wait_seconds + pause) / (seconds + pause)), seconds, pause)
        for seconds in range(fallback_seconds, fallback_seconds // 10, -1)
        for pause in _PAUSES_SECONDS
        if seconds + pause <= fallback_seconds
    )
    return next(
        candidate
        for candidate in candidates
        if abs(candidate.total_seconds - max_wait_seconds) <= _LARGEST_MISS_SECONDS
    )
