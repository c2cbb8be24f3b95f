"""The JSON of a lock's description, as `fairlock show --json` and the functions answer it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlock.clock import iso_utc
from fairlock.protocol.description import (
    DescribedForcedRelease,
    DescribedHolder,
    DescribedWaiter,
    LockDescription,
)


def lock_json(lock: LockDescription) -> dict[str, Any]:
    """One lock. Times are ISO 8601 in UTC; what a lock does not have is null."""
    last = lock.last_forced_release
    return {
        "lock_name": lock.name,
        "seen_at": _iso(lock.seen_at),
        "limit": lock.limit,
        "holders": [_holder(holder) for holder in lock.holders],
        "waiters": {
            "count": lock.waiters.count,
            "oldest": _iso_or_none(lock.waiters.oldest),
            "first": [_waiter(waiter) for waiter in lock.waiters.first],
        },
        "last_forced_release": None if last is None else _forced_release(last),
    }


def _holder(holder: DescribedHolder) -> dict[str, Any]:
    return {
        "owner_name": holder.owner_name,
        "acquired_at": _iso(holder.acquired_at),
        "expires_at": _iso(holder.expires_at),
        "lease_seconds": holder.lease,
        "limit": holder.limit,
        "fencing_token": holder.fencing_token,
        "data": holder.data,
        "execution_arn": holder.execution_arn,
    }


def _waiter(waiter: DescribedWaiter) -> dict[str, Any]:
    return {
        "owner_name": waiter.owner_name,
        "entered_at": _iso(waiter.entered_at),
        "limit": waiter.limit,
        "execution_arn": waiter.execution_arn,
    }


def _forced_release(last: DescribedForcedRelease) -> dict[str, Any]:
    return {
        "fencing_token": last.fencing_token,
        "at": _iso(last.at),
        "requested_by": last.requested_by,
        "reason": last.reason,
    }


def _iso(moment: datetime) -> str:
    return iso_utc(round(moment.timestamp() * 1000))


def _iso_or_none(moment: datetime | None) -> str | None:
    return None if moment is None else _iso(moment)
