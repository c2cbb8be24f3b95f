"""Acquire: claim a permit, and read from a failed claim what to do next.

claim ──▶ written ─────────────────────────────────────▶ granted
  ▲  └──▶ condition failed, with the item as it was
  │         ├─ I am a holder already ──────────────────▶ granted again, same token
  │         ├─ I released before ──────────────────────▶ refused: ALREADY_RELEASED
  │         ├─ leases are over ─▶ take over ─▶ written ▶ granted
  │         │                        │
  └─────────┼────────────────────────┘ the state moved under us
            └─ all permits are out ────────────────────▶ refused: HELD
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leasehold.backoff import advise_retry_seconds
from leasehold.context import LockContext
from leasehold.dynamo import Written
from leasehold.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    Refusal,
    RefusalReason,
)
from leasehold.overdue import Departures, find_departures
from leasehold.protocol.expressions import Update
from leasehold.protocol.items import read_holder, read_state
from leasehold.protocol.requests import claim_permit, renew, take_over
from leasehold.protocol.verdict import AlreadyHolder, AlreadyReleased, LeasesOver, judge

_MOST_TRIES: Final = 4
"""A try after the first follows only from a state that moved between two requests of ours."""


@dataclass(frozen=True, slots=True)
class _Try:
    """The next write to attempt; if it succeeds the caller is a holder."""

    update: Update
    taken_over: int = 0


def acquire(context: LockContext, request: AcquireRequest) -> Grant | Refusal:
    """See `LockStore.acquire`."""
    attempt = _claim(context, request)
    for _ in range(_MOST_TRIES):
        outcome = context.table.update(attempt.update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            return _grant(request, holder, taken_over=attempt.taken_over)
        state = read_state(outcome.item)
        step = _next_step(context, request, state)
        if not isinstance(step, _Try):
            return step
        attempt = step
    return _refuse(context, request, state, RefusalReason.HELD)


def _next_step(
    context: LockContext, request: AcquireRequest, state: LockState
) -> _Try | Grant | Refusal:
    now_ms = context.clock.wall_ms()
    match judge(state, request, now_ms=now_ms, tolerance_ms=context.tolerance_ms):
        case AlreadyHolder(holder, is_over=False):
            return _grant(request, holder, repeated=True)
        case AlreadyHolder():
            return _renew_own(context, request)
        case AlreadyReleased():
            return _refuse(context, request, state, RefusalReason.ALREADY_RELEASED)
        case LeasesOver(candidates, needed):
            departures = find_departures(context, request.lock_name, candidates, needed=needed)
            if len(departures.leavers) < needed:
                return _refuse(context, request, state, RefusalReason.HELD, departures)
            now_ms = context.clock.wall_ms()
            update = take_over(request, departures.leavers, now_ms=now_ms)
            return _Try(update, taken_over=len(departures.leavers))
        case _:
            return _refuse(context, request, state, RefusalReason.HELD)


def _claim(context: LockContext, request: AcquireRequest) -> _Try:
    return _Try(claim_permit(request, now_ms=context.clock.wall_ms()))


def _renew_own(context: LockContext, request: AcquireRequest) -> _Try | Grant:
    """A grant whose lease ran out before its reply arrived is renewed, unless the place is gone."""
    heartbeat = HeartbeatRequest(
        lock_name=request.lock_name, owner_id=request.owner_id, lease_ms=request.lease_ms
    )
    outcome = context.table.update(renew(heartbeat, now_ms=context.clock.wall_ms()))
    if isinstance(outcome, Written):
        return _grant(request, read_holder(outcome.item, request.owner_id), repeated=True)
    return _claim(context, request)


def _grant(
    request: AcquireRequest, holder: Holder, *, repeated: bool = False, taken_over: int = 0
) -> Grant:
    return Grant(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        fencing_token=holder.fencing_token,
        lease_ms=holder.lease_ms,
        acquired_at_ms=holder.acquired_at_ms,
        expires_at_ms=holder.expires_at_ms,
        repeated=repeated,
        taken_over=taken_over,
    )


def _refuse(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    reason: RefusalReason,
    departures: Departures | None = None,
) -> Refusal:
    departures = departures or Departures()
    retry_after_seconds = advise_retry_seconds(
        now_ms=context.clock.wall_ms(),
        entered_at_ms=request.entered_at_ms,
        lease_ends_ms=[h.expires_at_ms + context.tolerance_ms for h in state.holders],
        random=context.random,
    )
    return Refusal(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        reason=reason,
        holders=state.holders,
        retry_after_seconds=retry_after_seconds,
        extended=departures.extended,
        liveness_unknown=departures.unknown,
    )
