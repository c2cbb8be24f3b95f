"""Judges whether the lease of another owner is over: by its stored end, or by watching it.

A lease that is watched for its whole length needs no wall clock:

    holder    ──renews──┐                            own end: sent + lease
                        ▼ written
    observer              ┊ sees it first ─── a whole lease, and a margin ──▶ over

The observer's span begins after the holder's and is not shorter, so it ends later, whatever time
the two wall clocks show. If the holder renews in between, the observer's write finds another
revision and changes nothing (Gray and Cheriton, "Leases", SOSP 1989, on why only rates of clocks
matter).
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
    """Judges the leases of other owners."""

    def is_over(self, lock_name: str, holder: Holder) -> bool:
        """Whether a holder, as it was read just now, may lose its place."""
        ...

    def seconds_left(self, lock_name: str, holder: Holder) -> float:
        """How long until the lease is over if the holder does not renew; 0 or less if it is."""
        ...

    def seconds_to_watch(self, lock_name: str, holder: Holder) -> float | None:
        """How long to watch a lease that is over by the wall clock, but was not watched so far.

        None for any other lease.
        """
        ...


class WatchedExpiry:
    """A lease is over once its holder was seen unchanged for the whole stored lease.

    Our own monotonic clock measures the span, from the first sight of the holder; so a holder at
    first sight is never over. At most 10,000 holders are remembered; one that is forgotten is
    watched from the beginning, which delays its end and never hastens it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[tuple[int, int], float]] = OrderedDict()
        self._mutex = threading.Lock()

    def is_over(self, lock_name: str, holder: Holder) -> bool:
        """See `LeaseExpiry`."""
        return self.seconds_left(lock_name, holder) <= 0

    def seconds_left(self, lock_name: str, holder: Holder) -> float:
        """See `LeaseExpiry`."""
        now = self._clock.monotonic()
        key = (lock_name, holder.owner_id)
        with self._mutex:
            # The token too: an owner that was evicted and granted again is at revision 1 again.
            renewal = (holder.fencing_token, holder.revision)
            seen, first_seen = self._seen.pop(key, (renewal, now))
            if seen != renewal:
                first_seen = now
            self._seen[key] = (renewal, first_seen)
            if len(self._seen) > _MOST_WATCHED:
                self._seen.popitem(last=False)
        return first_seen + _watch_seconds(holder) - now

    def seconds_to_watch(self, lock_name: str, holder: Holder) -> float | None:
        """See `LeaseExpiry`."""
        over_by_wall_clock = StoredExpiry(self._clock).is_over(lock_name, holder)
        if not over_by_wall_clock or self.is_over(lock_name, holder):
            return None
        return _watch_seconds(holder)


class StoredExpiry:
    """A lease is over once the wall clock has passed its stored end and a tolerance.

    Right as long as our wall clock and the holder's differ by less than the tolerance.
    """

    def __init__(self, clock: Clock, *, tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms

    def is_over(self, lock_name: str, holder: Holder) -> bool:
        """See `LeaseExpiry`."""
        return self.seconds_left(lock_name, holder) < 0

    def seconds_left(self, _lock_name: str, holder: Holder) -> float:
        """See `LeaseExpiry`."""
        return (holder.expires_at_ms + self._tolerance_ms - self._clock.wall_ms()) / 1000

    def seconds_to_watch(self, _lock_name: str, _holder: Holder) -> float | None:
        """See `LeaseExpiry`."""
        return None


def seconds_until_free(
    lease_expiry: LeaseExpiry, lock_name: str, holders: Sequence[Holder], *, needed: int
) -> float:
    """How long until the leases of `needed` holders are over."""
    left = sorted(lease_expiry.seconds_left(lock_name, holder) for holder in holders)
    return left[needed - 1]


def explain_unwatched(lease_expiry: LeaseExpiry, lock_name: str, holders: Sequence[Holder]) -> str:
    """Names a holder whose lease is over by the wall clock but not yet by watching, and the remedy.

    Empty if there is none. A holder that belongs to a workflow is none: its lease ends with the
    workflow.
    """
    for holder in holders:
        seconds = lease_expiry.seconds_to_watch(lock_name, holder)
        if seconds is not None and holder.execution_arn is None:
            return (
                f"the lease of {holder.owner_name or '?'} is over by the wall clock, but this "
                f"client has not watched it for its whole length; a wait of "
                f"{math.ceil(seconds) + 1} s would, "
                'and takeover="stored_expiry" goes by the wall clock'
            )
    return ""


def _watch_seconds(holder: Holder) -> float:
    """The stored lease, from a renewal to its end by the clock of the process that wrote it."""
    span_ms = holder.lease_ms
    if holder.revision == 1:
        head_start_ms = holder.expires_at_ms - holder.acquired_at_ms - holder.lease_ms
        span_ms += min(max(head_start_ms, 0), _LONGEST_HEAD_START_MS)
    return span_ms / 1000 * (1 + _MARGIN_SHARE) + _MARGIN_SECONDS
