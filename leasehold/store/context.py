"""The table and the services that every operation on a lock uses."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from leasehold.backoff import Random
from leasehold.clock import Clock, SystemClock
from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry import RetryBudget
from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS, Holder, LockState, SeenLock
from leasehold.store.events import Observe, ignore_events
from leasehold.store.lease_expiry import LeaseExpiry, StoredExpiry
from leasehold.workflows.engine import NoWorkflows, WorkflowEngine

NoteHandOff = Callable[[str, SeenLock, float], None]
"""Called with a lock's name, the lock as a hand-off has left it, and a reading of the monotonic
clock not later than the hand-off."""


def note_nothing(_lock_name: str, _seen: SeenLock, _sent: float) -> None:
    """For a caller whose process has no waiters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """What an operation on a lock needs besides its request.

    Attributes:
        table: where the locks are.
        clock: the present; its wall clock is compared with leases that others wrote.
        tolerance_ms: added to another owner's lease before it counts as over.
        lease_expiry: judges whether another owner's lease is over; None is `StoredExpiry` with this
            clock and tolerance.
        workflows: wakes waiters, ends heartbeat states, and tells whether an execution still runs.
        observe: is told what happens besides the answer, for metrics and logs.
        note_hand_off: is told of each hand-off of this process, for the waiters in it. What it is
            told proves ownership.
        retry_budget: how long to go on when other owners keep changing the lock.
        random: source of jitter, from 0 to 1.
    """

    table: LockTable
    clock: Clock = field(default_factory=SystemClock)
    tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS
    lease_expiry: LeaseExpiry | None = None
    workflows: WorkflowEngine = field(default_factory=NoWorkflows)
    observe: Observe = ignore_events
    note_hand_off: NoteHandOff = note_nothing
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    random: Random = random.random

    def earliest_ms(self) -> int:
        """The present at the earliest, for what must not be taken for later than it is."""
        return self.clock.wall_ms()

    def latest_ms(self) -> int:
        """The present at the latest, for what must not be taken for earlier than it is."""
        return self.clock.wall_ms()

    def leaving_ms(self, seen: LockState) -> int:
        """The present at the latest, for an owner that leaves a lock seen in this state."""
        return max(self.latest_ms(), seen.released_at_ms or 0)

    def is_lease_over(self, lock_name: str, holder: Holder) -> bool:
        """Whether another owner's lease is over."""
        expiry = self.lease_expiry or StoredExpiry(self.clock, tolerance_ms=self.tolerance_ms)
        return expiry.is_over(lock_name, holder)
