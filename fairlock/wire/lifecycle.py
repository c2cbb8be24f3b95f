"""The JSON of a lifecycle event: `detail` of an event in EventBridge."""

from __future__ import annotations

from typing import Any

from fairlock.clock import iso_utc
from fairlock.protocol.lifecycle import LifecycleEvent, LifecycleKind


def lifecycle_json(event: LifecycleEvent, *, event_id: str, at_ms: int) -> dict[str, Any]:
    """One event; whatever there is none of is left out.

    Args:
        event: what happened.
        event_id: the same when the event comes twice.
        at_ms: when the write happened, as the stream tells it, to the second.
    """
    told: dict[str, Any] = {
        "event_id": event_id,
        "lock_name": event.lock_name,
        "at": iso_utc(at_ms),
        "execution_arn": event.execution_arn,
        "successor_fencing_token": event.successor,
        "requested_by": event.requested_by,
        "reason": event.reason,
    }
    holder = event.holder
    if holder is not None:
        told |= {
            "owner_name": holder.owner_name,
            "fencing_token": holder.fencing_token,
            "acquired_at": iso_utc(holder.acquired_at_ms),
        }
        if event.kind is LifecycleKind.GRANTED:
            told |= {"limit": holder.limit, "lease_seconds": holder.lease_ms / 1000}
        else:
            told["held_ms"] = max(0, at_ms - holder.acquired_at_ms)
    return {name: value for name, value in told.items() if value is not None}
