"""How long a waiting client sleeps between two looks."""

from __future__ import annotations

from typing import Final

from leasehold.backoff import SHARE_OF_WAIT, Random

_SHORTEST_SECONDS: Final = 0.1
_SHARE_OF_LEASE: Final = 1 / 3


def longest_pause(*, longest_poll: float, lease_seconds: float) -> float:
    """Most seconds between two looks: a lease that was handed over is far from over by then."""
    return min(longest_poll, lease_seconds * _SHARE_OF_LEASE)


def pause_seconds(*, waited: float, longest: float, until_free: float, random: Random) -> float:
    """A share of the time waited so far, with jitter; earlier if a lease may be over by then.

    Args:
        waited: seconds since the acquisition began.
        longest: most seconds.
        until_free: seconds until holders may be put out, unless they renew; may be infinite.
        random: source of jitter.
    """
    share = min(max(waited * SHARE_OF_WAIT, _SHORTEST_SECONDS), longest)
    pause = share * (0.5 + random() / 2)
    return min(pause, max(until_free, _SHORTEST_SECONDS) + random() * _SHORTEST_SECONDS)


def retry_seconds(attempt: int, *, longest: float, random: Random) -> float:
    """Before repeating a request whose outcome is unknown: twice as long each time, with jitter."""
    pause: float = min(_SHORTEST_SECONDS * 2**attempt, longest)
    return pause * (0.5 + random() / 2)
