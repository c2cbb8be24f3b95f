"""Token buckets, by which AWS's services limit how often they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.simulation.engine import Engine


@dataclass(frozen=True, slots=True)
class Quota:
    """A bucket of so many tokens, refilled by so many a second."""

    size: float
    refill: float

    def scaled(self, scale: float) -> Quota:
        """The same for a smaller world; one token at least."""
        return Quota(max(1.0, self.size * scale), self.refill * scale)


QUOTAS: Final = {
    "StartExecution": Quota(1_300, 300),
    "StopExecution": Quota(1_000, 200),
    "RedriveExecution": Quota(1_300, 300),
    "DescribeExecution": Quota(300, 15),
    "SendTask": Quota(3_000, 500),
    "StateTransition": Quota(5_000, 5_000),
    "PutEvents": Quota(18_750, 18_750),
}
"""Defaults in us-east-1, us-west-2 and eu-west-1: "Service quotas" of the Step Functions developer
guide, and "Amazon EventBridge quotas" (deliveries to targets) of its user guide. Other regions have
less: see `ELSEWHERE`."""
ELSEWHERE: Final = {
    "StartExecution": Quota(800, 150),
    "StopExecution": Quota(500, 25),
    "RedriveExecution": Quota(800, 150),
    "DescribeExecution": Quota(250, 10),
    "SendTask": Quota(1_500, 300),
    "StateTransition": Quota(800, 800),
    "PutEvents": Quota(750, 750),
}


class Bucket:
    """One such bucket.

    Attributes:
        refused: how often it was empty.
    """

    def __init__(self, engine: Engine, quota: Quota) -> None:
        self._engine, self._quota = engine, quota
        self._left, self._at = quota.size, engine.now
        self.refused = 0

    def take(self) -> bool:
        """Takes a token, if there is one."""
        self._refill()
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True

    def reserve(self) -> float:
        """Takes the next token that there will be; the seconds until then."""
        self._refill()
        self._left -= 1
        return max(0.0, -self._left / self._quota.refill)

    def _refill(self) -> None:
        now = self._engine.now
        self._left = min(self._quota.size, self._left + (now - self._at) * self._quota.refill)
        self._at = now
