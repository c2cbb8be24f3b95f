"""Events: what happens to locks besides the answer to a call, for metrics and logs.

No event holds an owner_id or a task token: a user's `observe` gets them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The oldest waiter got a permit. The event does not tell its owner_id, which is its own.

    Attributes:
        fencing_token: of the new holder's grant.
        owner_name: the new holder's label.
        execution_arn: the workflow execution that it belongs to.
        waited_ms: from the waiter's entry to the grant.
        latency_ms: from the moment the departure was noticed to the message to the waiter.
    """

    lock_name: str
    fencing_token: int
    owner_name: str
    execution_arn: str | None
    waited_ms: int
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Holders whose lease and workflow were over lost their place, to a waiter or to nobody."""

    lock_name: str
    holders: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedByForce:
    """Somebody who is not the holder has released it.

    Attributes:
        fencing_token: of the grant that ended.
        owner_name: the former holder's label.
        execution_arn: the workflow execution that it belongs to; its work goes on unless it has a
            heartbeat.
        held_ms: how long it had held.
        requested_by: who did it, as the request says.
        reason: why.
    """

    lock_name: str
    fencing_token: int
    owner_name: str
    execution_arn: str | None
    held_ms: int
    requested_by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLimits:
    """An acquire found holders that name another limit. All of them count; mostly a mistake.

    Attributes:
        limit: that of the acquire.
        holders_limits: the other limits that holders name, in ascending order.
    """

    lock_name: str
    limit: int
    holders_limits: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A lease ran out, and was extended because its workflow still runs."""

    lock_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessUnknown:
    """Step Functions did not say whether a holder's workflow still runs: it counts as running."""

    lock_name: str
    execution_arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushUnknown:
    """A waiter was perhaps not told of its grant: it finds out by its fallback poll."""

    lock_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNotRemoved:
    """A lock is free, but its workflow's claim could not be removed. TTL will; it does no harm."""

    lock_name: str
    execution_arn: str


Event = (
    HandedOver
    | Evicted
    | ReleasedByForce
    | MixedLimits
    | Extended
    | LivenessUnknown
    | PushUnknown
    | ClaimNotRemoved
)
Observe = Callable[[Event], None]


def ignore_events(_event: Event) -> None:
    """For a caller that measures nothing."""
