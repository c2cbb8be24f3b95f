"""How long to wait before asking again: proportional to the wait so far, with jitter.

So the delay of noticing a release stays within that share, and the number of requests grows with
the logarithm of the wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

SHARE_OF_WAIT: Final = 0.2
LEAST_SHARE_OF_WAIT: Final = 0.02
SHORTEST_SECONDS: Final = 1
LONGEST_SECONDS: Final = 60
_JITTER: Final = 0.5
_SHORTEST_RETRY_SECONDS: Final = 0.1
_SHORTEST_POLL_SECONDS: Final = 0.025
_SHARE_OF_EXPECTED_WAIT: Final = 0.5
_ENOUGH_GRANTS: Final = 4
_MOST_DOUBLINGS: Final = 60
"""A float has room for a thousand, and an outage of hours for more repeats."""

Random = Callable[[], float]
"""A number from 0 (included) to 1 (excluded), as `random.random` gives it."""


def advise_retry_seconds(
    *, now_ms: int, waiting_since_ms: int | None, lease_ends_ms: Iterable[int], random: Random
) -> int:
    """Whole seconds until it is worth asking again, at least one, with jitter.

    By how long the caller has waited, if it has, and by when the holders' leases are over for
    others.
    """
    waited_seconds = 0 if waiting_since_ms is None else max(0, now_ms - waiting_since_ms) / 1000
    share = min(max(waited_seconds * SHARE_OF_WAIT, SHORTEST_SECONDS), LONGEST_SECONDS)
    jittered = share * (1 + _JITTER * (2 * random() - 1))
    next_end = min((end - now_ms for end in lease_ends_ms if end > now_ms), default=None)
    if next_end is not None:
        # Not at every end: a lease that is renewed again and again ends again and again.
        least = waited_seconds * LEAST_SHARE_OF_WAIT
        jittered = min(jittered, max(next_end / 1000 + random(), least))
    return max(SHORTEST_SECONDS, math.ceil(jittered))


def longest_poll_seconds(*, longest_poll: float, lease_seconds: float) -> float:
    """Most seconds between two polls: a lease that was handed over is far from over by then."""
    return min(longest_poll, lease_seconds / 3)


def poll_seconds(
    *,
    unchanged: float,
    ahead: int,
    served: int,
    waited: float,
    seconds_per_grant: float,
    longest: float,
    until_free: float,
    random: Random,
) -> float:
    """Seconds until the next poll of a waiter, with jitter.

    The waiter that is next polls after a share of the time for which the lock has not changed hands
    so far. A waiter with others in front waits for half of the time that their grants will take; so
    it polls a few times more, the oftener the nearer it comes, however many are in front. Few
    grants are weak evidence: until then it waits for no longer than half of what it has waited.

    `unchanged` counts the seconds since the last grant that was seen; `served` the grants since
    this waiter joined, `waited` seconds ago; `seconds_per_grant` is 0 if none was seen, and then
    `unchanged` at least; in `until_free` seconds holders may be evicted, unless they renew.
    """
    expected = ahead * (seconds_per_grant or max(unchanged, _SHORTEST_POLL_SECONDS))
    if served < _ENOUGH_GRANTS:
        expected = min(expected, waited)
    shares = unchanged * SHARE_OF_WAIT, expected * _SHARE_OF_EXPECTED_WAIT
    pause = min(max(*shares, _SHORTEST_POLL_SECONDS), longest) * (0.5 + random() / 2)
    least = _SHORTEST_RETRY_SECONDS
    return min(pause, max(until_free, least) + random() * least)


def doubled(seconds: float, times: int, *, longest: float) -> float:
    """The seconds, doubled so many times, but at most `longest`."""
    pause: float = min(seconds * 2 ** min(times, _MOST_DOUBLINGS), longest)
    return pause


def retry_seconds(attempt: int, *, longest: float, random: Random) -> float:
    """Before repeating a request whose outcome is unknown: twice as long each time, with jitter."""
    return doubled(_SHORTEST_RETRY_SECONDS, attempt, longest=longest) * (0.5 + random() / 2)
