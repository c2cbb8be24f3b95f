"""AWS's time: the `Date` of an answer for judgements, and an estimate for everything else.

    answer ─▶ Date ─▶ decides about the leases that this very answer shows (`lease_time.py`)
                └───▶ estimate ─▶ what is written: ends of leases, places, token seeds, TTL

The estimate is our wall clock as long as that is possible by the last answers: a Date was made
between the sending of its request and the arrival of its answer, and is cut to the second. It never
decides whose a lock is. So it needs no lock (a signal handler may interrupt it, and a fork copy
it), and an estimate that is wrong costs a request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from fairlock.clock import Clock
from fairlock.protocol.lease_time import DATE_RESOLUTION_MS, FRONT_END_MS

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
    """What the last answers have told: by how much AWS's time is ahead of the monotonic clock.

    Attributes:
        least_ms: at least so much.
        most_ms: at most so much.
        at: reading of the monotonic clock for which this was true.
        wall_ms: by how much the wall clock was ahead of the monotonic clock.
    """

    least_ms: float
    most_ms: float
    at: float
    wall_ms: float


class AwsClock:
    """The clock of AWS, as the answers of DynamoDB tell it.

    One for all requests of a process or of a client: in Lambda it outlives the invocation.

    Args:
        clock: our own. Its monotonic part should count the time for which the machine sleeps.
        uses_dates: whether a Date counts; else the system's clock replaces it, for a place
            where no answer has one.
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

        At any other address than AWS's the system's clock counts, if there is no Date.

        Args:
            response: the answer, or the refusal, as boto3 gives it.
            sent: reading of the monotonic clock before its request was sent first.
            endpoint_url: where the request went.

        Returns:
            None if an answer of AWS has no Date.
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
        if edges is None:
            return wall_ms
        return round(min(max(wall_ms, edges[0]), edges[1]))

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

        If our two clocks disagree about the time since then, one of them was set, or stood still
        while the machine was frozen; nothing tells which.
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
