"""JSON out: the answers and errors of the functions. Times are ISO 8601 in UTC, with milliseconds.

The answer says how long it may rely on its own lease in seconds from its sending, not when: its
clock may be wrong. A grant that is pushed to a waiter has been under way for an unknown time, so it
does not tell: a heartbeat does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from fairlock.clock import iso, iso_utc
from fairlock.errors import DescribedCeiling, DescribedHolder, InvalidRequest, LockItemMalformed
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.description import (
    DescribedForcedRelease,
    DescribedWaiter,
    LockDescription,
    describe_ceiling,
    describe_holder,
)
from fairlock.protocol.model import ForceReleaseRequest, Grant, Holder
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.protocol.pace import MICROSECONDS, AwsTime, PaceRequest, Slot, TooLate
from fairlock.protocol.waiters import MOST_PAGES_READ, MOST_PLACES_OF_AN_EXECUTION, MOST_WAITERS


def lock_json(lock: LockDescription) -> dict[str, Any]:
    """One lock. Times are ISO 8601 in UTC; what a lock does not have is null."""
    last = lock.last_forced_release
    return {
        "lock_name": lock.name,
        "seen_at": iso(lock.seen_at),
        "limit": lock.limit,
        "holders": [holder_json(holder) for holder in lock.holders],
        "waiters": {
            "count": lock.waiters.count,
            "oldest": None if lock.waiters.oldest is None else iso(lock.waiters.oldest),
            "first": [_waiter(waiter) for waiter in lock.waiters.first],
        },
        "last_forced_release": last and _dated(last),
        "newest": lock.newest,
        "ceiling": lock.ceiling and _dated(lock.ceiling),
    }


def holder_json(holder: DescribedHolder) -> dict[str, Any]:
    """One holder. Whatever tells less of a holder takes its fields from here."""
    return {
        "owner_name": holder.owner_name,
        "acquired_at": iso(holder.acquired_at),
        "expires_at": iso(holder.expires_at),
        "lease_seconds": holder.lease,
        "limit": holder.limit,
        "shared": holder.shared,
        "fencing_token": holder.fencing_token,
        "data": holder.data,
        "execution_arn": holder.execution_arn,
    }


def _waiter(waiter: DescribedWaiter) -> dict[str, Any]:
    return {
        "owner_name": waiter.owner_name,
        "entered_at": iso(waiter.entered_at),
        "limit": waiter.limit,
        "shared": waiter.shared,
        "only_newest": waiter.only_newest,
        "execution_arn": waiter.execution_arn,
    }


def _dated(told: DescribedForcedRelease | DescribedCeiling) -> dict[str, Any]:
    return {**asdict(told), "at": iso(told.at)}


Json = dict[str, Any]


def acquire_answer(answer: Grant | Queued | Refusal) -> Json:
    """Makes the answer of acquire. It never shows the owner_id of another owner."""
    if isinstance(answer, Grant):
        return {"acquired": True, **_held(answer)}
    ceiling = describe_ceiling(answer.ceiling)
    details: Json = {} if ceiling is None else {"detail": f"the lock is {ceiling}"}
    if isinstance(answer, Queued):
        reason = "QUEUED"
        details |= {"ticket": answer.entered_at_ms}
        if answer.position is not None:
            details["position"] = answer.position
    else:
        reason = answer.reason.value
        if answer.liveness_unknown:
            details = {"detail": _LIVENESS_UNKNOWN}
        if answer.reason is RefusalReason.QUEUE_FULL:
            details = {"detail": _QUEUE_FULL}
        if answer.reason is RefusalReason.ASK_AGAIN:
            details = {"detail": _ASK_AGAIN, "entered_at_ms": answer.called_at_ms}
        if answer.reason is RefusalReason.SUPERSEDED:
            details = {"newest": answer.newest}
    return {
        "acquired": False,
        "lock_name": answer.lock_name,
        "owner_id": answer.owner_id,
        "reason": reason,
        **details,
        "holders": [_shown(holder) for holder in answer.holders],
        **({} if ceiling is None else {"ceiling": _dated(ceiling)}),
        "retry_after_seconds": answer.retry_after_seconds,
    }


def heartbeat_answer(answer: Grant | NotHeld) -> Json:
    """Makes the answer of heartbeat."""
    if isinstance(answer, Grant):
        return {"renewed": True, **_held(answer)}
    return {"renewed": False, **_not_held(answer)}


def release_answer(answer: Released | NotHeld) -> Json:
    """Makes the answer of release."""
    if isinstance(answer, Released):
        return {"released": True, "lock_name": answer.lock_name, "owner_id": answer.owner_id}
    return {"released": False, **_not_held(answer)}


def describe_answer(lock_name: str, lock: LockDescription | None) -> Json:
    """Makes the answer of inspect about one lock."""
    if lock is None:
        return {"found": False, "lock_name": lock_name}
    return {"found": True, **lock_json(lock)}


def force_release_answer(request: ForceReleaseRequest, answer: Released | None) -> Json:
    """Makes the answer of a release by force. It never shows the owner_id of the former holder."""
    asked = {"lock_name": request.lock_name, "fencing_token": request.fencing_token}
    if answer is None:
        return {"released": False, **asked, "reason": "HOLDER_CHANGED"}
    return {"released": True, **asked}


def set_limit_answer(request: SetCeilingRequest) -> Json:
    """Makes the answer to a change of the ceiling."""
    return {"lock_name": request.lock_name, "limit": request.limit}


def pace_answer(request: PaceRequest, answer: Slot | TooLate, now: AwsTime) -> Json:
    """Makes the answer of pace. Whole seconds, rounded up: a Wait state takes no others."""
    asked = {"pace_name": request.name, "reservation_id": request.reservation_id}
    if isinstance(answer, TooLate):
        seconds = _whole_seconds(answer.wait_us)
        return {"reserved": False, **asked, "reason": "TOO_LATE", "retry_after_seconds": seconds}
    return {"reserved": True, **asked, "wait_seconds": _whole_seconds(answer.wait_us(now))}


def _whole_seconds(microseconds: int) -> int:
    return -(-microseconds // MICROSECONDS)


def invalid_request_text(error: InvalidRequest) -> str:
    """The `errorMessage` of a refused request: a line for people, and the same as JSON.

    Lambda reports of an error its class name and its text, and nothing else. The first line may
    change; the last one is the contract.
    """
    fault = {"field": error.field, "rule": error.rule, "value": error.value}
    return f"{error}\n{json.dumps(fault)}"


def read_invalid_request(text: str) -> InvalidRequest:
    """The error of such a text. Without the JSON, the whole text is the rule of the request."""
    told, _, line = text.rpartition("\n")
    try:
        fault = json.loads(line)
        field, rule, value = str(fault["field"]), str(fault["rule"]), fault["value"]
    except (ValueError, TypeError, KeyError, RecursionError):
        told, field, rule, value = text, "request", text, None
    # Made as pickle makes it: what it shows is not to be shortened and quoted again.
    error = InvalidRequest.__new__(InvalidRequest, told)
    error.field, error.rule, error.value = field, rule, value
    return error


_LIVENESS_UNKNOWN = (
    "a lease is over, but Step Functions did not say whether its workflow still runs: still held"
)

_QUEUE_FULL = (
    f"the queue of this lock is full ({MOST_WAITERS:,} callers, {MOST_PAGES_READ} MB of them, or "
    f"{MOST_PLACES_OF_AN_EXECUTION} of one execution): this caller is not in it, and may ask again"
)

_ASK_AGAIN = (
    "by AWS's clock an owner has left the lock since the entered_at_ms of this call, or that is in "
    "the future: the call may be a late copy. To get the lock, call again with this entered_at_ms"
)


def _held(answer: Grant) -> Json:
    return {
        "lock_name": answer.lock_name,
        "owner_id": answer.owner_id,
        "fencing_token": answer.fencing_token,
        "lease_seconds": _seconds(answer.lease_ms),
        **({} if answer.own_ms is None else {"expires_in_seconds": _seconds(answer.own_ms)}),
        "acquired_at": iso_utc(answer.acquired_at_ms),
    }


def _not_held(answer: NotHeld) -> Json:
    return {"lock_name": answer.lock_name, "owner_id": answer.owner_id, "reason": "NOT_HELD"}


def _shown(holder: Holder) -> Json:
    """A holder, as far as it concerns a caller that was refused."""
    whole = holder_json(describe_holder(holder))
    return {name: whole[name] for name in ("owner_name", "acquired_at", "expires_at")}


def _seconds(milliseconds: int) -> float:
    """Seconds; a whole number is an integer, so that 60 does not become 60.0 in the JSON."""
    whole, rest = divmod(milliseconds, 1000)
    return milliseconds / 1000 if rest else whole


MOST_LOCKS: Final = 1_000
MOST_BYTES: Final = 2_000_000
"""Of the locks of one answer; Lambda answers 6 MB at most, and the largest lock takes 0.4 MB."""


def list_answer(
    found: Iterator[LockDescription | LockItemMalformed],
    *,
    free: bool,
    has_time: Callable[[], bool],
) -> dict[str, Any]:
    """Makes the answer of a list: its locks, also `free` ones if they are wanted.

    `after` is the name to go on after, null if these were all; `malformed` are the keys of locks
    whose items another program has changed.
    """
    locks: list[dict[str, Any]] = []
    malformed: list[str] = []
    after, size = None, 0
    for lock in found:
        if isinstance(lock, LockItemMalformed):
            malformed.append(lock.partition_key)
            continue
        if free or lock.is_in_use:
            locks.append(lock_json(lock))
            size += len(json.dumps(locks[-1]))
        if len(locks) >= MOST_LOCKS or size >= MOST_BYTES or not has_time():
            after = lock.name
            break
    return {"locks": locks, "after": after, "malformed": malformed}
