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
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from leasehold.clock import Clock
from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS, Holder
from leasehold.text import label_of

_MARGIN_SECONDS: Final = 0.1
_MARGIN_SHARE: Final = 0.002
"""Quartz is off by 100 millionths at worst, time daemons bend a clock by 500: 0.2 % is ample."""
_MOST_WATCHED: Final = 10_000
_LONGEST_HEAD_START_MS: Final = 150_000
"""A lease that was handed over begins when the waiter is to ask next, 130 s later at most."""


class LeaseExpiry(ABC):
    """Judges the leases of other owners."""

    @abstractmethod
    def seconds_left(self, lock_name: str, holder: Holder) -> float:
        """How long until the lease is over if the holder does not renew; below 0 if it is over."""

    def is_over(self, lock_name: str, holder: Holder) -> bool:
        """Whether a holder, as it was read just now, may lose its place."""
        return self.seconds_left(lock_name, holder) < 0

    def explain_unwatched(self, _lock_name: str, _holders: Sequence[Holder]) -> str:
        """Names a holder whose lease is over by the wall clock only, and the remedy; else empty.

        Never a holder that belongs to a workflow: its lease ends with the workflow.
        """
        return ""


class WatchedExpiry(LeaseExpiry):
    """A lease is over once its holder was seen unchanged for the whole stored lease.

    Our own monotonic clock measures the span, from the first sight of the holder; so a holder at
    first sight is never over. At most 10,000 holders are remembered; one that is forgotten is
    watched from the beginning, which delays its end and never hastens it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[tuple[str, str], tuple[tuple[int, int], float]] = OrderedDict()
        self._mutex = threading.Lock()

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

    def explain_unwatched(self, lock_name: str, holders: Sequence[Holder]) -> str:
        """See `LeaseExpiry`."""
        stored = StoredExpiry(self._clock)
        for holder in holders:
            if not stored.is_over(lock_name, holder) or self.is_over(lock_name, holder):
                continue
            if holder.execution_arn is None:
                name = label_of(holder.owner_name)
                return (
                    f"the lease of {name} is over by the wall clock, but "
                    "this client has not watched it for its whole length; a wait of "
                    f"{math.ceil(_watch_seconds(holder)) + 1} s would, "
                    'and takeover="stored_expiry" goes by the wall clock'
                )
        return ""


class StoredExpiry(LeaseExpiry):
    """A lease is over once the wall clock has passed its stored end and a tolerance.

    Right as long as our wall clock and the holder's differ by less than the tolerance.
    """

    def __init__(self, clock: Clock, *, tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS) -> None:
        self._clock = clock
        self._tolerance_ms = tolerance_ms

    def seconds_left(self, _lock_name: str, holder: Holder) -> float:
        """See `LeaseExpiry`."""
        return (holder.expires_at_ms + self._tolerance_ms - self._clock.wall_ms()) / 1000


def _watch_seconds(holder: Holder) -> float:
    """The stored lease, from a renewal to its end by the clock of the process that wrote it."""
    span_ms = holder.lease_ms
    if holder.revision == 1:
        head_start_ms = holder.expires_at_ms - holder.acquired_at_ms - holder.lease_ms
        span_ms += min(max(head_start_ms, 0), _LONGEST_HEAD_START_MS)
    return span_ms / 1000 * (1 + _MARGIN_SHARE) + _MARGIN_SECONDS
