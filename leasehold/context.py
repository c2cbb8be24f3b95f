"""What every operation on a lock needs besides its request."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from leasehold.backoff import Random
from leasehold.clock import Clock, SystemClock
from leasehold.dynamo import LockTable
from leasehold.liveness import LivenessOf, nobody_knows
from leasehold.model import DEFAULT_CLOCK_TOLERANCE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LockContext:
    """The table and the seams to the world around it.

    Attributes:
        table: where the locks are.
        clock: the present; its wall clock is compared with leases that others wrote.
        tolerance_ms: added to another owner's lease before it counts as over.
        liveness_of: tells whether a holder's workflow still runs.
        random: source of jitter, from 0 to 1.
    """

    table: LockTable
    clock: Clock = field(default_factory=SystemClock)
    tolerance_ms: int = DEFAULT_CLOCK_TOLERANCE_MS
    liveness_of: LivenessOf = nobody_knows
    random: Random = random.random
