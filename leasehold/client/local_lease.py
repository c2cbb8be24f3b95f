"""How long a grant lasts, by our own clock, and how it ends. No requests are made here.

          ┌──▶ LOST      its lease is over, or somebody else has the place; told exactly once
    HELD ─┤
          └──▶ RELEASING ─▶ RELEASED
                  └─────▶ LOST    the release found somebody else, or nobody, in the place

The lease is counted from the moment before its last successful renewal was sent: DynamoDB wrote it
later than that, so nobody else's count of it ends before ours.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from leasehold.client.acquisition import TimedGrant
from leasehold.client.arguments import Timing
from leasehold.client.logging import failsafe_logger
from leasehold.client.lost_event import LostEvent
from leasehold.clock import Clock
from leasehold.errors import LockLost

_logger: Final = failsafe_logger()


class LeaseState(Enum):
    """What a grant has become."""

    HELD = auto()
    LOST = auto()
    RELEASING = auto()
    RELEASED = auto()


class LocalLease:
    """The time of one grant.

    Args:
        clock: the present.
        granted: the grant, and since when it counts.
        timing: when it is to be renewed, and when it is in danger.
        on_lost: is told why, once, in whatever thread finds out: must be quick.
        on_danger: same, each time that the lock comes into danger.

    Attributes:
        lost: set when it is lost.
        taken: whether the table has said that this owner holds nothing any more.
    """

    def __init__(
        self,
        clock: Clock,
        granted: TimedGrant,
        *,
        timing: Timing,
        on_lost: Callable[[str], None],
        on_danger: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._lock_name = granted.grant.lock_name
        self._timing = timing
        self._on_lost = on_lost
        self._on_danger = on_danger
        self._process = os.getpid()
        self._changing = threading.RLock()  # A signal handler may release.
        self._standing = LeaseState.HELD
        self._why_lost = ""
        self._in_danger = False
        self._lease_seconds = granted.grant.lease_ms / 1000
        self._ends_at = granted.since + self._lease_seconds
        self.taken = False
        self.lost = LostEvent(self.is_lost)

    @property
    def lease_seconds(self) -> float:
        """For how long a renewal holds."""
        return self._lease_seconds

    @property
    def period(self) -> float:
        """Seconds between two renewals."""
        return self._timing.period(self._lease_seconds)

    @property
    def ends_at(self) -> float:
        """Reading of the monotonic clock at which the lease is over."""
        return self._ends_at

    @property
    def danger_at(self) -> float:
        """Reading of the monotonic clock at which danger is to be reported, if it was not yet."""
        if self._in_danger:
            return self._ends_at
        return self._ends_at - self._timing.safe(self._lease_seconds)

    @property
    def is_from_parent_process(self) -> bool:
        """Whether this is a forked child's copy of its parent's lock."""
        return self._process != os.getpid()

    def standing(self) -> LeaseState:
        """What has become of the grant, after a look at the clock."""
        if self._standing is LeaseState.HELD and self.is_over():
            self.lose("its lease is over", only_if_over=True)
        return self._standing

    def is_over(self) -> bool:
        """Whether the lease is over, whatever has become of the grant."""
        return self._clock.monotonic() >= self._ends_at

    def is_held(self) -> bool:
        """Whether the lock is held, by our own clock."""
        return not self.is_from_parent_process and self.standing() is LeaseState.HELD

    def is_lost(self) -> bool:
        """Whether the lock is lost, by our own clock."""
        return self.is_from_parent_process or self.standing() is LeaseState.LOST

    def require(self) -> None:
        """Raises `LockLost` unless the lock is held."""
        if self.is_held():
            return
        why = self._why_lost or "it was released"
        if self._standing is LeaseState.RELEASING:
            why = "its release has begun, so it may have been released"
        if self.is_from_parent_process:
            why = "it belongs to the process that this one was forked from"
        raise LockLost(f"lock {self._lock_name!r}: {why}")

    def remaining(self) -> float:
        """Seconds until the lease is over; 0 if the lock is not held."""
        return max(0.0, self._ends_at - self._clock.monotonic()) if self.is_held() else 0.0

    def check_lease(self) -> bool:
        """Callbacks what time has brought; returns whether the lock is still held."""
        if not self.is_held():
            return False
        with self._changing:
            is_new = not self._in_danger and self._clock.monotonic() >= self.danger_at
            self._in_danger = self._in_danger or is_new
        if is_new:
            _tell(self._on_danger)
        return True

    def renewed(self, sent: float, lease_seconds: float) -> None:
        """A renewal that was sent then has been written."""
        with self._changing:
            if self._standing is LeaseState.HELD:
                self._lease_seconds = lease_seconds
                self._ends_at = sent + lease_seconds
                self._in_danger = False

    def shorten(self, ends_at: float) -> None:
        """The lease may be over earlier than was known."""
        with self._changing:
            self._ends_at = min(self._ends_at, ends_at)

    def change(self, before: LeaseState, after: LeaseState) -> None:
        """From one standing to another, if it is in the first."""
        with self._changing:
            if self._standing is before:
                self._standing = after

    def lose(
        self,
        why: str,
        *,
        taken: bool = False,
        only_if_over: bool = False,
        unless_releasing: bool = False,
    ) -> None:
        """The lock is lost; tells so unless it is known.

        Args:
            why: for people.
            taken: whether the table said so.
            only_if_over: whether a renewal that came in this moment wins.
            unless_releasing: whether a release that has begun explains it.
        """
        with self._changing:
            if unless_releasing and self._standing in {LeaseState.RELEASING, LeaseState.RELEASED}:
                return
            self.taken = self.taken or taken
            renewed = only_if_over and not self.is_over()
            if renewed or self._standing in {LeaseState.LOST, LeaseState.RELEASED}:
                return
            self._standing = LeaseState.LOST
            self._why_lost = why
        self.lost.set()
        _tell(lambda: self._on_lost(why))


def _tell(listener: Callable[[], None]) -> None:
    """What a listener raises ends neither the check that found out, nor anybody's heartbeats."""
    try:
        listener()
    except Exception:
        _logger.exception("a loss, or a danger, could not be told")
