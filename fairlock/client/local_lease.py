"""A grant's lease as its holder sees it: by the monotonic clock of this process, without requests.

          ┌──▶ LOST         the lease is over, or the table names another owner; reported once
    HELD ─┤
     ▲    └──▶ RELEASING ─▶ RELEASED
     │              ├─────▶ LOST    the release found that this owner held nothing any more
     └──────────────┘               a guarded write that was to release it was refused

The lease is counted from the moment before its last successful renewal was sent, and for as long as
the Date of the answer allows (`clock.py`). With a `max_hold` it ends with that at the
latest. Renewals are cut short, so that a process that freezes near the end holds the lock no
longer than one that does not.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from fairlock.client.arguments import AskedEvent, Timing
from fairlock.client.reporting import LockEventKind, logger
from fairlock.clock import Alarm, Clock, Seconds, in_seconds, lease_for
from fairlock.errors import LockLost
from fairlock.protocol.model import Grant
from fairlock.wire import rules
from fairlock.wire.rules import SHORTEST_LEASE_SECONDS

_TIMEOUT: Final = rules.Rule(
    "must be a number of seconds, or None for no end of the wait",
    lambda value: rules.is_number(value, -math.inf, math.inf),
)
LONGEST_NAP_SECONDS: Final = 1.0
"""Between two checks of the lease by `LostEvent`: heartbeats end when their client is closed."""


class LeaseState(Enum):
    """What has become of a grant."""

    HELD = auto()
    LOST = auto()
    RELEASING = auto()
    RELEASED = auto()


class LostEvent(AskedEvent, threading.Event):
    """Set when a lock is lost, or the work of a leader has to stop; each question checks the lease.

    In a process that was frozen a user's code may ask before the heartbeat thread has run again.
    """

    def __init__(self, is_lost: Callable[[], bool], clock: Clock) -> None:
        super().__init__()
        self._is_lost = is_lost
        self._clock = clock
        self._alarms: list[Alarm] = []

    def is_set(self) -> bool:
        """Whether the lock is lost."""
        return super().is_set() or self._is_lost()

    def set(self) -> None:
        """Ends all waits."""
        super().set()
        for alarm in list(self._alarms):
            alarm.ring()

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Waits until the lock is lost, at most so many seconds; returns whether it is."""
        now, seconds = self._clock.monotonic, in_seconds(timeout)
        if seconds is not None:
            rules.require("timeout", _TIMEOUT, seconds)
        ends_at = math.inf if seconds is None else now() + seconds
        alarm = self._clock.alarm()
        self._alarms.append(alarm)
        try:
            while not self.is_set():
                left = ends_at - now()
                if left <= 0:
                    return False
                alarm.wait(min(left, LONGEST_NAP_SECONDS))
        finally:
            self._alarms.remove(alarm)
        return True


Tell = Callable[[LockEventKind, str], None]


class LocalLease:
    """The lease of one grant. May be used by several threads, and by signal handlers.

    A loss and a release are told once, a danger each time that the lock comes into one, in the
    thread that finds out. Moments are readings of the monotonic clock.

    Attributes:
        listener: finds what to tell; weak, because heartbeats hold the lease: if it held the lock,
            a drop by its user would stay unnoticed.
        seconds: the lease, as long as max_hold does not cut it short.
        renewed_at: before the last renewal was sent.
        taken: whether the table has said that this grant is over.
        heartbeat_failure: why the last heartbeat failed; empty if it did not.
    """

    def __init__(
        self,
        clock: Clock,
        granted: Grant,
        *,
        timing: Timing,
        max_hold: float = math.inf,
        listener: Callable[[], Tell | None],
    ) -> None:
        self.lock_name = granted.lock_name
        self.owner_id = granted.owner_id
        self.fencing_token = granted.fencing_token
        self._clock = clock
        self._timing = timing
        self.listener = listener
        self._process = os.getpid()
        self._mutex = threading.RLock()  # Not a Lock: a signal handler may release.
        self._state = LeaseState.HELD
        self._reason = ""
        self._in_danger = False
        self._is_hold_nearly_over = False
        self.hold_until = granted.since + max_hold
        self._max_hold = max_hold
        self.seconds = granted.lease_ms / 1000
        self._count(granted, is_cut=False)
        self.taken = False
        self.heartbeat_failure = ""
        self.lost = LostEvent(self.is_lost, clock)

    @property
    def period(self) -> float:
        """Seconds between two renewals."""
        return self._timing.period(self.seconds)

    @property
    def danger_at(self) -> float:
        """Reading of the monotonic clock at which danger is to be reported, if it was not yet."""
        if self._in_danger:
            return self.ends_at
        return self.ends_at - self._timing.safe(self.seconds)

    @property
    def is_outlived(self) -> bool:
        """Whether max_hold is over, and the lock may still be taken in the table."""
        return self._is_last and self._state is LeaseState.LOST and not self.taken

    @property
    def is_from_parent_process(self) -> bool:
        """Whether this is a forked child's copy of its parent's lease."""
        return self._process != os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether its end was reported already; takes no mutex."""
        return self._state in {LeaseState.LOST, LeaseState.RELEASED}

    def state(self) -> LeaseState:
        """What has become of the grant, by the clock as it is now."""
        if self._state is LeaseState.HELD and self.is_over():
            told = f"its max_hold of {self._max_hold:g} s is over"
            self.lose(told if self._is_last else "its lease is over", only_if_over=True)
        return self._state

    def is_over(self) -> bool:
        """Whether the lease is over, whatever has become of the grant."""
        return self._clock.monotonic() >= self.ends_at

    def is_held(self) -> bool:
        """Whether the lock is held, by our own clock."""
        return not self.is_from_parent_process and self.state() is LeaseState.HELD

    def is_lost(self) -> bool:
        """Whether the lock is lost, by our own clock."""
        return self.is_from_parent_process or self.state() is LeaseState.LOST

    def require_held(self) -> None:
        """Raises `LockLost` unless the lock is held."""
        if self.is_held():
            return
        reason = self._reason or "it was released; acquire it again for further work"
        if self._state is LeaseState.RELEASING:
            reason = "its release has begun, so it may have been released"
        if self.is_from_parent_process:
            reason = "it belongs to the process that this one was forked from"
        raise LockLost(f"lock {self.lock_name!r}: {reason}")

    def remaining(self) -> float:
        """Seconds until the lease is over; 0 if the lock is not held."""
        return max(0.0, self.ends_at - self._clock.monotonic()) if self.is_held() else 0.0

    def lease_ms_until_end(self, lease_ms: int) -> int:
        """Such a lease, or a shorter one that its holder may rely on until max_hold is over."""
        if self.hold_until == math.inf:
            return lease_ms
        left_ms = (self.hold_until - self._clock.monotonic()) * 1000
        # The same for each renewal, so that none asks for an earlier end than the one before it:
        # that is refused, as a late copy would be, and costs a request more.
        drift_ms = lease_for(lease_ms) - lease_ms
        return math.ceil(min(lease_ms, max(left_ms, SHORTEST_LEASE_SECONDS * 1000) + drift_ms))

    def check(self) -> bool:
        """Reports loss and danger that time has brought; returns whether the lock is held."""
        if not self.is_held():
            return False
        with self._mutex:
            is_new = not self._in_danger and self._clock.monotonic() >= self.danger_at
            self._in_danger = self._in_danger or is_new
            self._is_hold_nearly_over = self._is_hold_nearly_over or (is_new and self._is_last)
        if is_new:
            failure = self.heartbeat_failure or "no heartbeat has been answered in time"
            told = f"its max_hold of {self._max_hold:g} s is nearly over"
            self._report(LockEventKind.IN_DANGER, told if self._is_last else failure)
        return True

    def renew(self, renewed: Grant, *, lease_ms: int | None = None) -> None:
        """Counts the lease again from a renewal that was written, and perhaps cut by max_hold."""
        lease_ms = renewed.lease_ms if lease_ms is None else lease_ms
        with self._mutex:
            if self._state is LeaseState.HELD:
                self.seconds = lease_ms / 1000
                self._count(renewed, is_cut=renewed.lease_ms < lease_ms)
                # A renewal ends a danger, but not that of a max_hold that is nearly over.
                self._in_danger = self._is_hold_nearly_over
                self.heartbeat_failure = ""

    def _count(self, granted: Grant, *, is_cut: bool) -> None:
        self.renewed_at = granted.since
        self.ends_at = min(granted.ends_at, self.hold_until)
        # A lease that was cut short may end a little before max_hold, for the same reason.
        self._is_last = is_cut or granted.ends_at >= self.hold_until

    def shorten(self, ends_at: float) -> None:
        """Ends the lease at that reading of the clock, unless it ends before."""
        with self._mutex:
            if ends_at < self.ends_at:
                self.ends_at, self._is_last = ends_at, False

    def change_state(self, before: LeaseState, after: LeaseState) -> None:
        """Changes the state from one to another; does nothing in any other state."""
        with self._mutex:
            if self._state is not before:
                return
            self._state = after
        if after is LeaseState.RELEASED:
            self._report(LockEventKind.RELEASED)

    def lose(
        self,
        reason: str,
        *,
        taken: bool = False,
        only_if_over: bool = False,
        unless_releasing: bool = False,
    ) -> None:
        """Marks the lock as lost; reports that, unless it was lost or released before.

        With `only_if_over` a renewal of this moment wins; with `unless_releasing` a release
        explains it.
        """
        with self._mutex:
            if unless_releasing and self._state in {LeaseState.RELEASING, LeaseState.RELEASED}:
                return
            self.taken = self.taken or taken
            renewed = only_if_over and not self.is_over()
            if renewed or self._state in {LeaseState.LOST, LeaseState.RELEASED}:
                return
            self._state = LeaseState.LOST
            self._reason = reason
        self.lost.set()
        self._report(LockEventKind.LOST, reason)

    def _report(self, kind: LockEventKind, reason: str = "") -> None:
        """What the listener raises must end neither a check nor other locks' heartbeats."""
        try:
            if (tell := self.listener()) is not None:
                tell(kind, reason)
        except Exception:
            logger.exception("lock %r: what became of it could not be reported", self.lock_name)
