"""What every operation on a lock needs besides its request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from leasehold.backoff import Random
from leasehold.clock import Clock, SystemClock
from leasehold.dynamo import LockTable
from leasehold.events import Observe, look_away
from leasehold.liveness import LivenessOf, nobody_knows
from leasehold.model import DEFAULT_CLOCK_TOLERANCE_MS
from leasehold.patience import Patience
from leasehold.push import Push, push_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """The table and the seams to the world around it.

    Attributes:
        table: where the locks are.
        clock: the present; its wall clock is compared with leases that others wrote.
        tolerance_ms: added to another owner's lease before it counts as over.
        liveness_of: tells whether a holder's workflow still runs.
        push: tells a waiter that it holds the lock now.
        observe: is told what happens besides the answer, for metrics and logs.
        patience: how long to go on when others keep moving the lock.
        random: source of jitter, from 0 to 1.
    """

    table: LockTable
    clock: Clock = field(default_factory=SystemClock)
    tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS
    liveness_of: LivenessOf = nobody_knows
    push: Push = push_nothing
    observe: Observe = look_away
    patience: Patience = field(default_factory=Patience)
    random: Random = random.random
