"""A retry waits as long as its retrier says.

AWS: the wait before retry n is IntervalSeconds * BackoffRate^(n-1), at most MaxDelaySeconds; with
JitterStrategy FULL it is a random time between 0 and that (developer guide, "Handling errors in
Step Functions workflows", Retrying after an error). There is no other ceiling.

Emulator: ignores MaxDelaySeconds and JitterStrategy and caps every wait at 60 seconds.

This: the wait happens where the retrier is chosen, and the emulator is told to wait 0 seconds.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from ministack.services import stepfunctions

from testbed.localaws.corrections import _interruptible


def apply() -> None:
    """Wait for the retrier's own delay."""
    _interruptible.install()
    original = stepfunctions._find_matching_retrier

    def find_matching_retrier(
        retriers: Sequence[Mapping[str, Any]], error: str, counts: Mapping[int, int]
    ) -> tuple[Mapping[str, Any] | None, int]:
        retrier, index = original(retriers, error, counts)
        if retrier is None:
            return None, index
        stepfunctions._scaled_sleep(delay_seconds(retrier, retries_so_far=counts.get(index, 0)))
        return {**retrier, "IntervalSeconds": 0}, index

    stepfunctions._find_matching_retrier = find_matching_retrier


def delay_seconds(retrier: Mapping[str, Any], *, retries_so_far: int) -> float:
    """Seconds before the next attempt."""
    growth = float(retrier.get("BackoffRate", 2.0)) ** retries_so_far
    seconds: float = retrier.get("IntervalSeconds", 1) * growth
    seconds = min(seconds, float(retrier.get("MaxDelaySeconds", seconds)))
    if retrier.get("JitterStrategy") == "FULL":
        return random.uniform(0, seconds)  # noqa: S311 - a delay, not a secret
    return seconds
