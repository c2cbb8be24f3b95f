"""What every operation on a lock needs besides its request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from leasehold.backoff import Random
from leasehold.clock import Clock, SystemClock
from leasehold.dynamodb.lock_table import LockTable
from leasehold.dynamodb.retry_budget import RetryBudget
from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS, Holder
from leasehold.store.events import Observe, look_away
from leasehold.store.lease_expiry import Lapsed, by_stored_expiry
from leasehold.workflows.executions import LivenessOf, nobody_knows
from leasehold.workflows.task_tokens import EndHeartbeat, Push, end_no_heartbeat, push_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """The table and the seams to the world around it.

    Attributes:
        table: where the locks are.
        clock: the present; its wall clock is compared with leases that others wrote.
        tolerance_ms: added to another owner's lease before it counts as over.
        lapsed: tells whether another owner's lease is over; None compares the stored end with the
            wall clock, and adds the tolerance.
        liveness_of: tells whether a holder's workflow still runs.
        push: tells a waiter that it holds the lock now.
        end_heartbeat: tells a heartbeat state that its work is done, or its lock lost.
        observe: is told what happens besides the answer, for metrics and logs.
        retry_budget: how long to go on when others keep moving the lock.
        random: source of jitter, from 0 to 1.
    """

    table: LockTable
    clock: Clock = field(default_factory=SystemClock)
    tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS
    lapsed: Lapsed | None = None
    liveness_of: LivenessOf = nobody_knows
    push: Push = push_nothing
    end_heartbeat: EndHeartbeat = end_no_heartbeat
    observe: Observe = look_away
    retry_budget: RetryBudget = field(default_factory=RetryBudget)
    random: Random = random.random

    def has_lapsed(self, lock_name: str, holder: Holder) -> bool:
        """Whether another owner's lease is over."""
        lapsed = self.lapsed or by_stored_expiry(self.clock, self.tolerance_ms)
        return lapsed(lock_name, holder)
