"""Whether a waiter should send a request, although nobody has handed a permit over to it."""

from __future__ import annotations

import math
from typing import Final

from leasehold.clock import Clock
from leasehold.protocol.model import AcquireRequest, LockState
from leasehold.store.lease_expiry import LeaseExpiry

_REQUEST_AGAIN_SECONDS: Final = 30.0
"""A lock that seemed free, but was not granted, is requested again after that, or once it moved."""


class FreePermit:
    """Finds permits that are free, or whose leases are over, in what the polls of a waiter read.

    Args:
        clock: the present.
        lease_expiry: tells whose lease is over.
        request: the acquisition that waits.

    Attributes:
        expected_at: reading of the monotonic clock at which the lease is over that has to end
            before this acquisition may be granted, unless it is renewed; inf if none is expected.
    """

    def __init__(self, clock: Clock, lease_expiry: LeaseExpiry, request: AcquireRequest) -> None:
        self._clock = clock
        self._lease_expiry = lease_expiry
        self._lock_name = request.lock_name
        self._limit = request.limit
        self._last_tried: tuple[object, float] = (None, -math.inf)
        self.expected_at = math.inf

    def is_worth_a_request(self, state: LockState) -> bool:
        """Whether a request may be granted by the lock as it was read just now.

        Yes if a permit is free or enough leases are over; and if nobody waits, because then this
        waiter was dropped from the queue. But no for 30 s if the lock is as it was at the last yes.
        """
        now = self._clock.monotonic()
        needed = state.held - state.limit_for(self._limit) + 1  # As the store judges.
        self.expected_at = self._end_of_lease(state, needed, now)
        # As the store judges: at the very moment of its end a lease is not over yet.
        is_open = needed <= 0 or self.expected_at < now
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

    def _end_of_lease(self, state: LockState, needed: int, now: float) -> float:
        """When so many leases of the holders are over; inf if none has to be, or if too few are."""
        if not 0 < needed <= len(state.holders):
            return math.inf
        seconds_left = self._lease_expiry.seconds_left
        left = sorted(seconds_left(self._lock_name, holder) for holder in state.holders)
        return now + left[needed - 1]
