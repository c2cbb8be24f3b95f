"""Locks on their way out: not renewed any more, and perhaps not free yet."""

from __future__ import annotations

import threading

from leasehold.client.lease_handle import HeldLock
from leasehold.client.local_lease import Standing


class Unreleased:
    """Remembers locks whose release has begun, until it has ended, or their lease has.

    A release may be interrupted, or its outcome stay unknown; then the client's end tries again.
    """

    def __init__(self) -> None:
        self._held: dict[HeldLock, None] = {}
        self._changing = threading.RLock()

    def add(self, held: HeldLock) -> None:
        """Its release begins."""
        with self._changing:
            while self._held and (oldest := next(iter(self._held))).is_over():
                del self._held[oldest]
            self._held[held] = None

    def settle(self, held: HeldLock) -> None:
        """Forgets it, if there is nothing left to be released."""
        if held.standing() in {Standing.RELEASED, Standing.LOST}:
            with self._changing:
                self._held.pop(held, None)

    def locks(self) -> list[HeldLock]:
        """Those that are perhaps not free."""
        with self._changing:
            return [held for held in self._held if not held.is_over()]
