"""Names that several packages must agree on: metrics, environment variables, parameters."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

NAMESPACE: Final = "Fairlock"
SERVICE_NAME_VARIABLE: Final = "POWERTOOLS_SERVICE_NAME"
"""The value of the only dimension, `service`, and of `service` in each log line: which of the lock
services of an account it is. Lock names are unbounded, so they never are a dimension."""


TABLE_NAME_VARIABLE: Final = "FAIRLOCK_TABLE_NAME"
"""The environment variable with the name of the lock table, of the functions and of programs."""
ACQUIRE_FUNCTION_VARIABLE: Final = "FAIRLOCK_ACQUIRE_FUNCTION"
RELEASE_FUNCTION_VARIABLE: Final = "FAIRLOCK_RELEASE_FUNCTION"
"""By which `fairlock.durable` finds the service, in the environment of a durable function."""
MEETS_DURABLE_VARIABLE: Final = "FAIRLOCK_DURABLE"
"""Tells the service's functions that they will meet durable executions."""
REAP_QUEUE_VARIABLE: Final = "FAIRLOCK_REAP_QUEUE_URL"
"""The queue to which the reaper's function sends the messages of second passes."""
WATCHED_VARIABLE: Final = "FAIRLOCK_WATCHED"
"""Names of the locks that the function watch measures, as a JSON list."""
LOCK_NAME_VARIABLE: Final = "FAIRLOCK_LOCK_NAME"
FENCING_TOKEN_VARIABLE: Final = "FAIRLOCK_FENCING_TOKEN"
"""Tell a command which lock the `fairlock run` around it holds, and the token of its grant."""
HELD_LOCKS_VARIABLE: Final = "FAIRLOCK_HELD_LOCKS"
"""Tells a command, and what it starts, which locks the `fairlock run` around it holds."""
TABLE_NAME_PARAMETER: Final = "LockTableName"
"""The name of the lock table, among the outputs and the parameters of a service's stack."""


def stack_parameter(stack: str, name: str) -> str:
    """Where in the Parameter Store the service of a stack tells a name, for other stacks."""
    return f"/fairlock/{stack}/{name}"


class LogMessage(StrEnum):
    """What the functions log, one line an event; the saved queries search for it."""

    GRANTED = "granted"
    QUEUED = "queued"
    REFUSED = "refused"
    RENEWED = "renewed"
    RELEASED = "released"
    NOT_HELD = "not held"
    """A heartbeat or a release came from an owner that does not hold the lock any more."""
    HANDED_OVER = "handed over"
    EVICTED = "evicted"
    RELEASED_BY_FORCE = "released by force"
    CEILING_CHANGED = "ceiling changed"
    HOLDER_CHANGED = "holder changed"
    LOST = "lost"
    """A workflow with keep_alive has lost its lock: its work was stopped."""
    REACQUIRED = "reacquired"
    DONE = "done"
    REAPED = "reaped"
    MALFORMED = "an item is malformed"
    MIXED_LIMITS = "mixed limits"
    EXTENDED = "extended"
    LIVENESS_UNKNOWN = "liveness unknown"
    PUSH_UNKNOWN = "push unknown"
    SUPERSEDED = "superseded"
    CLAIM_NOT_REMOVED = "claim not removed"
    RESERVED = "slot reserved"
    TOO_LATE = "slot too late"
    """The next slot of a pace begins later than its caller would wait: none was reserved."""


class MetricName(StrEnum):
    """One datum an event; counts, except for times (milliseconds) and QueueLength.

    docs/monitoring.md says what each tells.
    """

    GRANTED = "Granted"
    BUSY = "Busy"
    TAKEN_OVER = "TakenOver"
    RELEASED = "Released"
    LOST = "Lost"
    HELD_TIME = "HeldTime"
    QUEUED = "Queued"
    QUEUE_LENGTH = "QueueLength"
    CURRENT_WAIT = "CurrentWait"
    HANDED_OVER = "HandedOver"
    WAIT_TIME = "WaitTime"
    HAND_OFF_LATENCY = "HandOffLatency"
    PUSH_UNKNOWN = "PushUnknown"
    SUPERSEDED = "Superseded"
    LEFT_QUEUE = "LeftQueue"
    FORCED_RELEASE = "ForcedRelease"
    CEILING_CHANGED = "CeilingChanged"
    MIXED_LIMITS = "MixedLimits"
    EXTENDED = "Extended"
    LIVENESS_UNKNOWN = "LivenessUnknown"
    REAPED = "Reaped"
    REAPED_WAITERS = "ReapedWaiters"
    CLAIM_NOT_REMOVED = "ClaimNotRemoved"
    REACQUIRED = "Reacquired"
    PACE_WAIT = "PaceWait"
    SLOT_TOO_LATE = "SlotTooLate"
