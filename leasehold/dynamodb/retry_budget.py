"""How long to go on when DynamoDB says "not now".

Full jitter spreads contenders best (Marc Brooker, "Exponential Backoff And Jitter", AWS
Architecture Blog, 2015).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Final

from leasehold.backoff import Random
from leasehold.clock import Clock, SystemClock

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """Pauses between tries of one request.

    Attributes:
        seconds: the longest time to go on with one request.
        deadline: reading of the monotonic clock at which everything must be done, for instance the
            end of a Lambda invocation.
        clock: measures and waits.
        random: source of jitter.
    """

    seconds: float = 5.0
    deadline: float = math.inf
    clock: Clock = field(default_factory=SystemClock)
    random: Random = random.random

    def is_over(self, *, since: float) -> bool:
        """Whether to give up on what began at `since`, a reading of the monotonic clock."""
        return self.clock.monotonic() >= min(since + self.seconds, self.deadline)

    def has_ended(self) -> bool:
        """Whether the deadline is over."""
        return self.clock.monotonic() >= self.deadline

    def pause(self, attempt: int) -> None:
        """Waits before the try after this one (counted from 0)."""
        longest = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
        self.clock.wait(self.random() * longest)
