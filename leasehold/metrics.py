"""Names that several packages must agree on: metrics, environment variables, parameters."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NAMESPACE: Final = "Leasehold"
SERVICE: Final = "leasehold"
"""Value of the only dimension, `service`. Lock names are unbounded, so they never are one."""


TABLE_NAME_VARIABLE: Final = "LEASEHOLD_TABLE_NAME"
"""The environment variable with the name of the lock table, of the functions and of programs."""
ACQUIRE_FUNCTION_VARIABLE: Final = "LEASEHOLD_ACQUIRE_FUNCTION"
RELEASE_FUNCTION_VARIABLE: Final = "LEASEHOLD_RELEASE_FUNCTION"
"""By which `leasehold.durable` finds the service, in the environment of a durable function."""
MEETS_DURABLE_VARIABLE: Final = "LEASEHOLD_DURABLE"
"""Tells the service's functions that they will meet durable executions."""
REAP_QUEUE_VARIABLE: Final = "LEASEHOLD_REAP_QUEUE_URL"
"""The queue to which the reaper's function sends the messages of second passes."""
HELD_LOCKS_VARIABLE: Final = "LEASEHOLD_HELD_LOCKS"
"""Tells a command, and what it starts, which locks the `leasehold run` around it holds."""
TABLE_NAME_PARAMETER: Final = "LockTableName"
"""The name of the lock table, among the outputs and the parameters of a service's stack."""


def stack_parameter(stack: str, name: str) -> str:
    """Where in the Parameter Store the service of a stack tells a name, for other stacks."""
    return f"/leasehold/{stack}/{name}"


class MetricName(StrEnum):
    """One datum an event; counts, except for times (milliseconds) and QueueLength."""

    GRANTED = "Granted"
    """A lock was granted by acquire, repeats of the same acquisition not counted."""
    BUSY = "Busy"
    """Acquire was refused, because all permits are held."""
    TAKEN_OVER = "TakenOver"
    """Holders that were evicted for another owner, because their leases were over."""
    RELEASED = "Released"
    """A holder released its lock."""
    LOST = "Lost"
    """A heartbeat or a release came from an owner that does not hold the lock any more."""
    HELD_TIME = "HeldTime"
    """Milliseconds from the grant to the release."""
    QUEUED = "Queued"
    """A waiter joined the queue, or asked again from its place in it."""
    QUEUE_LENGTH = "QueueLength"
    """Position of a waiter in the queue when it joined or asked again."""
    CURRENT_WAIT = "CurrentWait"
    """Milliseconds that a waiter has waited so far, each time it asks; it waits still."""
    HANDED_OVER = "HandedOver"
    """A permit went to the oldest waiter; counts as Granted too."""
    WAIT_TIME = "WaitTime"
    """Milliseconds from a waiter's entry to its grant."""
    HAND_OFF_LATENCY = "HandOffLatency"
    """Milliseconds from noticing a departure to the message to the next holder."""
    PUSH_UNKNOWN = "PushUnknown"
    """It is unknown whether a waiter got the message of its grant: its fallback poll finds out."""
    LEFT_QUEUE = "LeftQueue"
    """A waiter left the queue without a grant."""
    FORCED_RELEASE = "ForcedRelease"
    """Somebody released a holder by force."""
    MIXED_LIMITS = "MixedLimits"
    """Acquires that found a holder with another limit on the same lock name."""
    EXTENDED = "Extended"
    """Leases that ran out while their workflow was still running, and were extended for it."""
    LIVENESS_UNKNOWN = "LivenessUnknown"
    """Step Functions did not tell whether a holder's workflow runs: it counts as held."""
    REAPED = "Reaped"
    """Holders freed because their workflow had ended without releasing."""
    REAPED_WAITERS = "ReapedWaiters"
    """Waiters taken out of queues because their workflow had ended."""
    CLAIM_NOT_REMOVED = "ClaimNotRemoved"
    """A lock was released, but the claim of its workflow could not be removed: TTL will."""
    REACQUIRED = "Reacquired"
    """A redriven workflow with keep_alive acquired its lock again, which was free."""
