"""When somebody else's lease is over: by the clock, or by having watched it long enough."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.clock import Clock
from leasehold.protocol.model import Holder

Lapsed = Callable[[str, Holder], bool]
"""From a lock's name and one of its holders to whether others may consider its lease over."""


def by_stored_expiry(clock: Clock, tolerance_ms: int) -> Lapsed:
    """Compares the end that the holder wrote with the present, for those who look only once.

    Right as long as the two clocks differ by less than the tolerance.
    """

    def lapsed(_lock_name: str, holder: Holder) -> bool:
        return holder.is_over(now_ms=clock.wall_ms(), tolerance_ms=tolerance_ms)

    return lapsed
