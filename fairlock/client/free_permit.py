"""Whether a waiter should send a request, although nobody has handed a permit over to it."""

from __future__ import annotations

import math
from typing import Final

from fairlock.clock import Clock
from fairlock.dynamodb.aws_clock import AwsClock
from fairlock.protocol.lease_time import DATE_RESOLUTION_MS, is_over, over_at_ms
from fairlock.protocol.model import AcquireRequest, LockState, SeenLock

_REQUEST_AGAIN_SECONDS: Final = 30.0
"""A lock that seemed free, but was not granted, is requested again after that, or once it moved."""


class FreePermit:
    """Finds permits that are free, or whose leases are over, in what the polls of a waiter read.

    Args:
        clock: the present.
        aws_clock: tells when it is worth looking whether a lease is over.
        request: the acquisition that waits.

    Attributes:
        expected_at: reading of the monotonic clock at which the lease is over that has to end
            before this acquisition may be granted, unless it is renewed; inf if none is expected.
    """

    def __init__(self, clock: Clock, aws_clock: AwsClock, request: AcquireRequest) -> None:
        self._clock = clock
        self._aws_clock = aws_clock
        self._limit = request.limit
        self._last_tried: tuple[object, float] = (None, -math.inf)
        self.expected_at = math.inf

    def is_worth_a_request(self, lock: SeenLock) -> bool:
        """Whether a request may be granted by the lock as it was read just now.

        Yes if a permit is free or enough leases are over; and if nobody waits, because then this
        waiter was dropped from the queue. But no for 30 s if the lock is as it was at the last yes.
        """
        now, state = self._clock.monotonic(), lock.state
        needed = state.held - state.limit_for(self._limit) + 1  # As the store judges.
        self.expected_at = self._end_of_lease(state, needed, now)
        is_open = needed <= 0 or self._has_leases_over(lock, needed)
        if state.contended and not is_open:
            return False
        seen = (state.held, state.fencing_token, state.contended, state.holders)
        last_seen, last_tried_at = self._last_tried
        if seen == last_seen:
            self.expected_at = math.inf
            if now < last_tried_at + _REQUEST_AGAIN_SECONDS:
                return False
        self._last_tried = (seen, now)
        return True

    def _has_leases_over(self, lock: SeenLock, needed: int) -> bool:
        """As the store will judge, by the Date of an answer that is a little later."""
        date_ms = lock.date_ms
        if date_ms is None:
            return False
        over = [h for h in lock.state.holders if is_over(h.expires_at_ms, date_ms=date_ms)]
        return len(over) >= needed

    def _end_of_lease(self, state: LockState, needed: int, now: float) -> float:
        """When a Date shows that so many leases are over; inf if none has to be, or too few are."""
        if not 0 < needed <= len(state.holders):
            return math.inf
        ends_ms = sorted(over_at_ms(holder.expires_at_ms) for holder in state.holders)
        # A Date is cut to the second: only the next whole second shows that this moment is over.
        shown_ms = -(-ends_ms[needed - 1] // DATE_RESOLUTION_MS) * DATE_RESOLUTION_MS
        return now + (shown_ms - self._aws_clock.now_ms()) / 1000
