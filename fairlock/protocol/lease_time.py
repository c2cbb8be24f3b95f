"""When a lease ends: for its holder, for everybody else, and as it is written. All by AWS's clock.

    holder     sends ───▶ written, answered at Date            own end
                 ├────────────────────────────────────────────────┤
    table        the stored end = AWS's time + lease + 1.5 s           ┊ stored end
    others                                                             ┊   ├─▶ over
                                                          by the Date of the answer that shows it

Each answer of DynamoDB has a `Date`, so each process that writes or reads a lease knows what AWS's
time was then. No wall clock decides, and nothing that a process remembers: a process that was
frozen, was forked, or has a clock that jumps or drifts, judges by an answer that it has just
received.

The rules leave room for what a Date does not tell. It is cut to the second. The front ends of
DynamoDB may differ by half a second from AWS's time, either way. And a monotonic clock may run 2 %
too slowly while a holder counts its lease.
"""

from __future__ import annotations

from typing import Final

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

    Args:
        lease_ms: the lease.
        expires_at_ms: the end that is stored.
        date_ms: the Date of the answer that shows it, made after that moment.
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
    """Whether a lease of another owner is over.

    Args:
        expires_at_ms: the end that is stored.
        date_ms: the Date of the very answer that shows it.
    """
    return date_ms >= over_at_ms(expires_at_ms)
