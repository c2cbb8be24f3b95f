"""The names of the metrics, for those who emit them (`lambdas`) and those who read them (`cdk`)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NAMESPACE: Final = "Leasehold"
SERVICE: Final = "leasehold"
"""Value of the only dimension, `service`. Lock names are unbounded, so they never are one."""


class MetricName(StrEnum):
    """One datum an event; counts, except for the two that are named Time."""

    GRANTED = "Granted"
    """A lock was granted by acquire, repeats of the same acquisition not counted."""
    BUSY = "Busy"
    """Acquire was refused because the permits are out."""
    TAKEN_OVER = "TakenOver"
    """Holders whose lease was over and who lost their place to another owner."""
    RELEASED = "Released"
    """A holder released its lock."""
    LOST = "Lost"
    """A heartbeat or a release came from somebody who does not hold the lock any more."""
    HELD_TIME = "HeldTime"
    """Milliseconds from the grant to the release."""
    EXTENDED = "Extended"
    """Leases that ran out while their workflow was still running, and were extended for it."""
    LIVENESS_UNKNOWN = "LivenessUnknown"
    """Step Functions would not say whether a holder's workflow still runs: it counts as held."""
