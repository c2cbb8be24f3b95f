"""Whose lease is over: by having watched it for its whole length, or by the end that it wrote.

A lease that is watched needs nobody's wall clock:

    holder    ──renews──┐                            own end: sent + lease
                        ▼ written
    observer              ┊ sees it first ─── a whole lease, and a margin ──▶ over

The observer's span begins after the holder's and is not shorter, so it ends later, whatever the two
think the time is. If the holder renews in between, the observer's write finds another revision and
changes nothing (Gray and Cheriton, "Leases", SOSP 1989, on why only rates of clocks matter).
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

from leasehold.clock import Clock
from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS, Holder

_MARGIN_SECONDS: Final = 0.1
_MARGIN_SHARE: Final = 0.002
"""Quartz is off by 100 millionths at worst, time daemons bend a clock by 500: 0.2 % is ample."""
_MOST_WATCHED: Final = 10_000
_LONGEST_HEAD_START_MS: Final = 150_000
"""A lease that was handed over begins when the waiter is to ask next, 130 s later at most."""


class LeaseExpiry(Protocol):
    """Judges the leases of others."""

    def lapsed(self, lock_name: str, holder: Holder) -> bool:
        """Whether a holder, as it was read just now, may lose its place."""
        ...

    def seconds_left(self, lock_name: str, holder: Holder) -> float:
        """How long until then, if it does not renew; not above 0 if it may."""
        ...

    def to_be_watched(self, lock_name: str, holder: Holder) -> float | None:
        """For how long a holder has to be watched that keeps its place only for want of that.

        None if its lease is not over by the wall clock either, or if it may lose its place.
        """
        ...


class WatchedLeases:
    """Over is what was seen unchanged for the whole stored lease, on our own monotonic clock.

    Who was never seen before is never over. At most 10,000 holders are remembered; one that is
    forgotten is watched from the beginning, which delays, and never hastens, its end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[tuple[int, int], float]] = OrderedDict()
        self._looking = threading.Lock()

    def lapsed(self, lock_name: str, holder: Holder) -> bool:
        """See `LeaseExpiry`."""
        return self.seconds_left(lock_name, holder) <= 0

    def seconds_left(self, lock_name: str, holder: Holder) -> float:
        """See `LeaseExpiry`."""
        now = self._clock.monotonic()
        key = (lock_name, holder.owner_id)
        with self._looking:
            # The token too: an owner that was put out and granted again begins anew at revision 1.
            renewal = (holder.fencing_token, holder.revision)
            seen, first_seen = self._seen.pop(key, (renewal, now))
            if seen != renewal:
                first_seen = now
            self._seen[key] = (renewal, first_seen)
            if len(self._seen) > _MOST_WATCHED:
                self._seen.popitem(last=False)
        return first_seen + _watch_seconds(holder) - now

    def to_be_watched(self, lock_name: str, holder: Holder) -> float | None:
        """See `LeaseExpiry`."""
        looks_over = holder.is_over(
            now_ms=self._clock.wall_ms(), tolerance_ms=DEFAULT_CLOCK_TOLERANCE_MS
        )
        if not looks_over or self.lapsed(lock_name, holder):
            return None
        return _watch_seconds(holder)


class StoredLeases:
    """Over is what has passed the end that its holder wrote, by our wall clock, and a tolerance."""

    def __init__(self, clock: Clock, *, tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms

    def lapsed(self, lock_name: str, holder: Holder) -> bool:
        """See `LeaseExpiry`."""
        return self.seconds_left(lock_name, holder) < 0

    def seconds_left(self, _lock_name: str, holder: Holder) -> float:
        """See `LeaseExpiry`."""
        return (holder.expires_at_ms + self._tolerance_ms - self._clock.wall_ms()) / 1000

    def to_be_watched(self, _lock_name: str, _holder: Holder) -> float | None:
        """See `LeaseExpiry`."""
        return None


def seconds_until_free(
    lease_expiry: LeaseExpiry, lock_name: str, holders: Sequence[Holder], *, needed: int
) -> float:
    """How long until so many of the holders are over."""
    left = sorted(lease_expiry.seconds_left(lock_name, holder) for holder in holders)
    return left[needed - 1]


def doubt_about(lease_expiry: LeaseExpiry, lock_name: str, holders: Sequence[Holder]) -> str:
    """Says of whom the wall clock thinks otherwise than we, and what to do; empty if of nobody.

    A workflow is another matter: its lease ends with it.
    """
    for holder in holders:
        seconds = lease_expiry.to_be_watched(lock_name, holder)
        if seconds is not None and holder.execution_arn is None:
            return (
                f"the lease of {holder.owner_name or '?'} is over by the wall clock, but this "
                f"client has not watched it for its whole length; a wait of "
                f"{math.ceil(seconds) + 1} s would, "
                'and takeover="stored_expiry" goes by the wall clock'
            )
    return ""


def _watch_seconds(holder: Holder) -> float:
    """The stored lease: from one renewal to its end, both as the one who wrote it saw them."""
    span_ms = holder.lease_ms
    if holder.revision == 1:
        head_start_ms = holder.expires_at_ms - holder.acquired_at_ms - holder.lease_ms
        span_ms += min(max(head_start_ms, 0), _LONGEST_HEAD_START_MS)
    return span_ms / 1000 * (1 + _MARGIN_SHARE) + _MARGIN_SECONDS
