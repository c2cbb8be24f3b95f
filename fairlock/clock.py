"""Time: this machine's clocks, AWS's, how times are written, and when a lease ends.

All clocks are passed in, so that no test sleeps. The monotonic clock measures our own leases and
our waiting, because it never jumps. The wall clock decides nothing. AWS's time comes from answers:

    answer ─▶ Date ─▶ decides about the leases that this very answer shows
                └───▶ estimate ─▶ what is written: ends of leases, places, token seeds, TTL

The estimate is our wall clock as long as that is possible by the last answers. It never decides
whose a lock is, so it needs no mutex, and one that is wrong costs a request.

When a lease ends, all by AWS's clock:

    holder     sends ───▶ written, answered at Date            own end
                 ├────────────────────────────────────────────────┤
    table        the stored end = AWS's time + lease + 1.5 s           ┊ stored end
    others                                                             ┊   ├─▶ over
                                                          by the Date of the answer that shows it
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, overload
from urllib.parse import urlsplit

Seconds = float | timedelta
"""A length of time, as callers of the Python API may give it."""


@overload
def in_seconds(length: Seconds) -> float: ...


@overload
def in_seconds(length: Seconds | None) -> float | None: ...


def in_seconds(length: Seconds | None) -> float | None:
    """The number of seconds. What is no timedelta stays as it is, for the rule of its field."""
    return length.total_seconds() if isinstance(length, timedelta) else length


class Alarm(Protocol):
    """A wait that another thread may end."""

    def wait(self, seconds: float) -> None:
        """Lets that much time pass, or less: until `ring` is called, even if that was before."""
        ...

    def ring(self) -> None:
        """Ends the wait that is under way, or else the next one."""
        ...


class Clock(Protocol):
    """What Fairlock needs to know of time."""

    def wall_ms(self) -> int:
        """Epoch milliseconds, as good as this machine's clock."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow; the origin means nothing."""
        ...

    def wait(self, seconds: float) -> None:
        """Lets that much time pass."""
        ...

    def alarm(self) -> Alarm:
        """A new alarm for one waiter."""
        ...


class ThreadAlarm:
    """An `Alarm` of one thread.

    No `threading.Event`: a signal handler that sets it may wait for its mutex for ever.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def wait(self, seconds: float) -> None:
        """See `Alarm`."""
        with suppress(Empty):
            self._rings.get(timeout=max(0.0, seconds))

    def ring(self) -> None:
        """See `Alarm`."""
        self._rings.put(None)


class SystemClock:
    """The clock of this machine."""

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def alarm(self) -> Alarm:
        """An alarm for a thread."""
        return ThreadAlarm()


class BootClock(SystemClock):
    """The clock of this machine for leases: it also runs while the machine sleeps.

    On Linux `time.monotonic` stands still then, and so would a lease measured by it.
    """

    def monotonic(self) -> float:
        """Seconds since the machine was started, suspension included."""
        if sys.platform == "linux":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        if sys.platform == "darwin":  # There time.monotonic() stops during sleep, this does not.
            return time.clock_gettime(time.CLOCK_MONOTONIC)
        return time.monotonic()


def utc(epoch_ms: int) -> datetime:
    """Epoch milliseconds as a time in UTC, between 1970 and the end of the year 9999."""
    shown_ms = min(max(epoch_ms, 0), 253_402_300_799_999)  # A person may have written any number.
    moment = datetime.fromtimestamp(shown_ms // 1000, tz=UTC)
    return moment.replace(microsecond=shown_ms % 1000 * 1000)


def iso(moment: datetime) -> str:
    """A time as ISO 8601 in UTC, to the millisecond."""
    return iso_utc(round(moment.timestamp() * 1000))


def iso_utc(epoch_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC, for instance `2030-01-31T09:15:00.250Z`."""
    return f"{utc(epoch_ms).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


DATE_RESOLUTION_MS: Final = 1_000
FRONT_END_MS: Final = 500
"""How far the clock of one of DynamoDB's front ends may be from AWS's time."""
_LARGEST_DRIFT: Final = 0.02
_MARGIN_MS: Final = DATE_RESOLUTION_MS + FRONT_END_MS
"""Written on top of a lease, so that what the holder leaves off costs it no lease."""
_LONGEST_EXCESS_MS: Final = 4_000
_LEAST_SHARE: Final = 0.5


def stored_end_ms(now_ms: int, lease_ms: int) -> int:
    """The end to write for a lease that begins at AWS's time, as far as the writer knows that."""
    return now_ms + lease_ms + _MARGIN_MS


def own_ms(lease_ms: int, expires_at_ms: int, *, date_ms: int) -> int:
    """How long a holder may rely on its lease, from the moment before it sent its request.

    By the stored end, and by the Date of the answer that shows it, made after that moment.
    """
    left_ms = min(lease_ms, expires_at_ms - date_ms - _MARGIN_MS)
    return max(0, longest_own_ms(left_ms))


def longest_own_ms(lease_ms: int) -> int:
    """How long a holder may rely on such a lease at most."""
    return int(lease_ms * (1 - _LARGEST_DRIFT))


def lease_for(own_seconds: float) -> float:
    """The lease that its holder may rely on for so many seconds."""
    return own_seconds / (1 - _LARGEST_DRIFT)


def is_enough(own_ms: float, lease_ms: int) -> bool:
    """Whether a holder may begin with so much of its lease; else it renews the lease first."""
    return own_ms >= lease_ms * _LEAST_SHARE


def was_written_by_a_wrong_clock(lease_ms: int, expires_at_ms: int, *, date_ms: int) -> bool:
    """Whether a lease that was written just now ends too late, or too early to be relied on."""
    if expires_at_ms - date_ms > lease_ms + _LONGEST_EXCESS_MS:
        return True
    return not is_enough(own_ms(lease_ms, expires_at_ms, date_ms=date_ms), lease_ms)


def over_at_ms(expires_at_ms: int) -> int:
    """The earliest Date by which a lease of another owner is over."""
    return expires_at_ms + FRONT_END_MS


def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
    """Whether a lease of another owner is over, by the Date of the answer that shows its end."""
    return date_ms >= over_at_ms(expires_at_ms)


_SLACK: Final = 500e-6
"""By this share of the time since an answer, an estimate becomes less certain: clocks are bent."""
_JUMP_MS: Final = 1_000
_REMEMBERED_DATES: Final = 8
SYSTEM_CLOCK_MS: Final = 1_000
"""How wrong the clocks of machines may be, where no Date tells AWS's time."""
_AWS_DOMAINS: Final = (
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "amazonwebservices.com.cn",
    "amazonwebservices.eu",
    "api.aws",
    "c2s.ic.gov",
    "sc2s.sgov.gov",
    "cloud.adc-e.uk",
    "csp.hci.ic.gov",
    "api.aws.ic.gov",
    "api.aws.scloud",
    "api.cloud-aws.adc-e.uk",
    "api.aws.hci.ic.gov",
)
_NO_DATES: Final = (
    "%s sends no Date: leases go by this machine's clock, which must be within 1 s of those of all "
    "other clients"
)
NO_DATE: Final = (
    "an answer of DynamoDB came without a Date of its own, so nothing tells when a lease ends: is "
    "there a proxy in between? If that cannot be helped, and the clocks of all clients are right "
    'within 1 s, give clock="system"'
)


class _Estimate(NamedTuple):
    """What the last answers have told: by how much AWS's time is ahead of the monotonic clock."""

    least_ms: float
    most_ms: float
    at: float
    wall_ms: float


class AwsClock:
    """The clock of AWS, as the answers of DynamoDB tell it.

    One for all requests of a process or of a client; in Lambda it outlives the invocation. Without
    `uses_dates`, the system's clock replaces it, for a place where no answer has a Date.
    """

    def __init__(self, clock: Clock, *, uses_dates: bool = True) -> None:
        self._clock = clock
        self._uses_dates = uses_dates
        self._estimate: _Estimate | None = None
        self._has_told = False

    def monotonic(self) -> float:
        """Our monotonic clock."""
        return self._clock.monotonic()

    def date_ms(
        self, response: Mapping[str, Any], *, sent: float, endpoint_url: str | None
    ) -> int | None:
        """AWS's time when it made an answer that has just arrived; the estimate learns from it.

        At any other address than AWS's the system's clock counts, if there is no Date; at AWS's
        None comes back. `sent` is a reading of the monotonic clock before the first sending.
        """
        found = date_in(response) if self._uses_dates else None
        if found is not None:
            self._learn(found, sent)
            return found
        if self._uses_dates and is_aws(endpoint_url):
            return None
        if self._uses_dates and not self._has_told:
            self._has_told = True
            with suppress(Exception):  # A log that is broken must not break a request.
                logging.getLogger("fairlock").info(_NO_DATES, endpoint_url or "the lock table")
        return self._clock.wall_ms()

    def now_ms(self) -> int:
        """The best guess at AWS's time: our wall clock, or what is possible nearest to it.

        For what is written, and for order; never to judge a lease.
        """
        wall_ms, edges = self._clock.wall_ms(), self._edges()
        return wall_ms if edges is None else round(min(max(wall_ms, edges[0]), edges[1]))

    def earliest_ms(self) -> int | None:
        """AWS's time at least, whichever front end is asked; None before the first answer."""
        edges = self._edges()
        return None if edges is None else round(edges[0]) - FRONT_END_MS

    def latest_ms(self) -> int | None:
        """AWS's time at most; None before the first answer."""
        edges = self._edges()
        return None if edges is None else round(edges[1]) + FRONT_END_MS

    def edges_ms(self) -> tuple[int, int] | None:
        """AWS's time at least and at most; None before the first answer.

        Where the system's clock counts, that: it is right within 1 s, as those of all others.
        """
        if self._has_told or not self._uses_dates:
            wall_ms = self._clock.wall_ms()
            return wall_ms - SYSTEM_CLOCK_MS, wall_ms + SYSTEM_CLOCK_MS
        earliest_ms, latest_ms = self.earliest_ms(), self.latest_ms()
        return None if earliest_ms is None or latest_ms is None else (earliest_ms, latest_ms)

    def _learn(self, date_ms: int, sent: float) -> None:
        now = self._clock.monotonic()
        wall_ms = self._clock.wall_ms() - now * 1000
        least_ms, most_ms = date_ms - now * 1000, date_ms + DATE_RESOLUTION_MS - sent * 1000
        known = self._edges()
        if known is not None:
            low, high = known[0] - now * 1000, known[1] - now * 1000
            # If no time is possible by both, one of the clocks has moved: the newest answer counts.
            if max(low, least_ms) <= min(high, most_ms):
                least_ms, most_ms = max(low, least_ms), min(high, most_ms)
        self._estimate = _Estimate(least_ms, most_ms, now, wall_ms)

    def _edges(self) -> tuple[float, float] | None:
        """AWS's time at least and at most; None if the answers tell nothing of this moment.

        If our two clocks disagree about the time since then, one was set or stood still: which, is
        unknown.
        """
        known = self._estimate
        if known is None:
            return None
        now = self._clock.monotonic()
        if abs(self._clock.wall_ms() - now * 1000 - known.wall_ms) > _JUMP_MS:
            return None
        slack_ms = (now - known.at) * 1000 * _SLACK
        return now * 1000 + known.least_ms - slack_ms, now * 1000 + known.most_ms + slack_ms


def date_in(response: Mapping[str, Any]) -> int | None:
    """The Date of an answer, in epoch milliseconds; None if it has none that DynamoDB made for it.

    Not one that came through a cache or a proxy: that may be old, or the proxy's own.
    """
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if "x-amzn-requestid" not in headers or "age" in headers or "via" in headers:
        return None
    return _parsed(headers.get("date"))


@lru_cache(_REMEMBERED_DATES)
def _parsed(date: object) -> int | None:
    """A Date in epoch milliseconds. All answers of a second have the same."""
    try:
        return round(parsedate_to_datetime(str(date)).timestamp() * 1000)
    except (ValueError, TypeError):
        return None


@lru_cache(_REMEMBERED_DATES)
def is_aws(endpoint_url: str | None) -> bool:
    """Whether this is an address of AWS's."""
    host = urlsplit(endpoint_url or "").hostname or ""
    return host.endswith(tuple(f".{domain}" for domain in _AWS_DOMAINS))
