"""Repeats of a request that failed: the one loop, and how long it goes on.

Full jitter spreads contenders best (Marc Brooker, "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from fairlock.backoff import Random
from fairlock.clock import Clock, SystemClock
from fairlock.dynamodb.failures import raise_if_unknown, was_not_written, was_repeated

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """How long to repeat one request, and the pauses in between.

    Attributes:
        seconds: the longest time to go on with one request.
        deadline: reading of the monotonic clock at which everything must be done, for instance the
            end of a Lambda invocation.
        clock: measures and waits.
        random: source of jitter.
        first_pause_seconds: the longest pause before the first repeat; doubles with each repeat.
        longest_pause_seconds: the longest pause before any repeat.
    """

    seconds: float = 5.0
    deadline: float = math.inf
    clock: Clock = field(default_factory=SystemClock)
    random: Random = random.random
    first_pause_seconds: float = 0.02
    longest_pause_seconds: float = 0.5

    def is_over(self, *, since: float) -> bool:
        """Whether to give up on what began at `since`, a reading of the monotonic clock."""
        return self.clock.monotonic() >= min(since + self.seconds, self.deadline)

    def has_ended(self) -> bool:
        """Whether the deadline is over."""
        return self.clock.monotonic() >= self.deadline

    def pause(self, attempt: int) -> None:
        """Waits before the try after this one (counted from 0)."""
        longest = min(self.first_pause_seconds * 2**attempt, self.longest_pause_seconds)
        self.clock.wait(self.random() * longest)


def retry(
    send: Callable[[], _Answer],
    retry_budget: RetryBudget,
    *,
    repeat_after: Callable[[Exception], bool],
) -> _Answer:
    """Sends a request until it is answered.

    Args:
        send: sends it once.
        retry_budget: how long to go on.
        repeat_after: whether a repeat may help; called with each error.

    Raises:
        Exception: the last error of `send`, when no repeat helps or the budget is spent.
    """
    began = retry_budget.clock.monotonic()
    for attempt in itertools.count():
        try:
            return send()
        except Exception as error:
            if not repeat_after(error) or retry_budget.is_over(since=began):
                raise
        retry_budget.pause(attempt)
    raise AssertionError  # pragma: no cover - count() has no end


class RepeatedRequest:
    """One request to DynamoDB, repeated while DynamoDB is too busy for it.

    Attributes:
        sent: reading of the monotonic clock before it was sent first.
        repeated: whether botocore has sent it more than once, at any of our tries. One of those
            may have been written, and only its reply been lost, whatever was answered later.
    """

    def __init__(self, retry_budget: RetryBudget) -> None:
        self._retry_budget = retry_budget
        self.sent = retry_budget.clock.monotonic()
        self.repeated = False

    def send(self, send: Callable[[], _Answer]) -> _Answer:
        """Sends it until DynamoDB processes it, or the budget is spent.

        Raises:
            LockStoreUnavailable: outcome unknown.
        """
        try:
            return retry(send, self._retry_budget, repeat_after=self._was_not_written)
        except Exception as error:
            raise_if_unknown(error)
            raise

    def _was_not_written(self, error: Exception) -> bool:
        self.repeated |= was_repeated(error)
        return was_not_written(error)
