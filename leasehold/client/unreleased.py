"""Locks on their way out: not renewed any more, and perhaps not free yet."""

from __future__ import annotations

import threading

from leasehold.client.lease_handle import LeaseHandle
from leasehold.client.local_lease import LeaseState


class UnreleasedHandles:
    """Remembers locks whose release has begun, until it has ended, or their lease has.

    A release may be interrupted, or its outcome stay unknown; then the client's end tries again.
    """

    def __init__(self) -> None:
        self._held: dict[LeaseHandle, None] = {}
        self._changing = threading.RLock()

    def add(self, held: LeaseHandle) -> None:
        """Its release begins."""
        with self._changing:
            while self._held and (oldest := next(iter(self._held))).is_over():
                del self._held[oldest]
            self._held[held] = None

    def settle(self, held: LeaseHandle) -> None:
        """Forgets it, if there is nothing left to be released."""
        if held.standing() in {LeaseState.RELEASED, LeaseState.LOST}:
            with self._changing:
                self._held.pop(held, None)

    def locks(self) -> list[LeaseHandle]:
        """Those that are perhaps not free."""
        with self._changing:
            return [held for held in self._held if not held.is_over()]
