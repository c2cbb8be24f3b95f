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

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from leasehold.context import LockContext
from leasehold.dynamo import Written
from leasehold.errors import LockStoreUnavailable
from leasehold.events import Evicted
from leasehold.joining import advise, join
from leasehold.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    Queued,
    Refusal,
    RefusalReason,
)
from leasehold.overdue import NO_DEPARTURES, Departures, find_departures
from leasehold.protocol.items import read_holder, read_state
from leasehold.protocol.queue import Leaver
from leasehold.protocol.requests import claim_permit, put_out, take_over
from leasehold.protocol.retention import runs_short
from leasehold.protocol.verdict import (
    AlreadyHolder,
    AlreadyReleased,
    Free,
    FreeForWaiters,
    LeasesOver,
    judge,
)
from leasehold.protocol.writes import Update
from leasehold.renewing import renew_lease
from leasehold.vacating import vacate

_TRIES_WITHOUT_PAUSE: Final = 3


@dataclass(frozen=True, slots=True)
class _Try:
    """The next write to attempt; if it succeeds the caller is a holder.

    Attributes:
        taken_over: how many holders lose their place by it.
        waiters_served: whether all permits that waiters may have were handed over just before.
        queued: the caller's place in the queue, if it has joined already.
    """

    update: Update
    taken_over: int = 0
    waiters_served: bool = False
    queued: Queued | None = None


def acquire(context: LockContext, request: AcquireRequest) -> Grant | Queued | Refusal:
    """See `LockStore.acquire`."""
    began = context.patience.clock.monotonic()
    attempt = _claim(context, request)
    for number in itertools.count():
        outcome = context.table.update(attempt.update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            return _grant(request, holder, taken_over=attempt.taken_over)
        step = _next_step(context, request, read_state(outcome.item), attempt)
        if not isinstance(step, _Try):
            return step
        if context.patience.is_over(since=began):
            break
        if number >= _TRIES_WITHOUT_PAUSE:
            context.patience.pause(number)
        attempt = step
    # Neither granted nor refused: in the last step the caller may even have become a holder.
    message = "others moved the lock all the time; the outcome is unknown, repeat the call"
    raise LockStoreUnavailable(message)


def already_released(request: AcquireRequest) -> Refusal:
    """The answer to an acquisition that is over, whatever the lock is like."""
    return Refusal(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        reason=RefusalReason.ALREADY_RELEASED,
        holders=(),
        retry_after_seconds=1,
    )


def _next_step(
    context: LockContext, request: AcquireRequest, state: LockState, attempt: _Try
) -> _Try | Grant | Queued | Refusal:
    now_ms = context.clock.wall_ms()
    has_lapsed = partial(context.has_lapsed, request.lock_name)
    match judge(state, request, now_ms=now_ms, has_lapsed=has_lapsed):
        case AlreadyHolder(holder, is_fresh):
            fresh = _grant(request, holder, repeated=True)
            return fresh if is_fresh else _renew_own(context, request)
        case AlreadyReleased():
            return _refuse(context, request, state, RefusalReason.ALREADY_RELEASED)
        case Free():
            return _claim(context, request, state)
        case FreeForWaiters() if not attempt.waiters_served:
            vacate(context, request.lock_name, state, asking=request.owner_id)
            return replace(_claim(context, request), waiters_served=True)
        case LeasesOver(candidates, needed):
            return _replace_overdue(context, request, state, candidates, needed)
        case _:
            return attempt.queued or _wait_or_refuse(
                context, request, state, behind_others=attempt.waiters_served
            )


def _replace_overdue(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    candidates: Sequence[Holder],
    needed: int,
) -> _Try | Queued | Refusal:
    """Puts out holders whose lease and workflow are over, for the oldest waiter or the caller."""
    departures = find_departures(context, request.lock_name, candidates, needed=needed)
    leavers = departures.leavers
    if state.contended and leavers:
        leaver = Leaver(leavers[0], by_itself=False)
        vacate(context, request.lock_name, state, leaver=leaver, asking=request.owner_id)
        return _claim(context, request)
    if leavers and len(leavers) < needed:
        # The limit was lowered by so much that one acquire cannot make room; this much is done.
        update = put_out(request.lock_name, leavers, now_ms=context.clock.wall_ms())
        if isinstance(context.table.update(update), Written):
            context.observe(Evicted(lock_name=request.lock_name, holders=len(leavers)))
        return _claim(context, request)
    if not leavers:
        return _wait_or_refuse(context, request, state, departures)
    now_ms = context.clock.wall_ms()
    keep_long = runs_short(state, now_ms=now_ms)
    update = take_over(request, leavers, now_ms=now_ms, keep_long=keep_long)
    return _Try(update, taken_over=len(leavers))


def _wait_or_refuse(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    departures: Departures = NO_DEPARTURES,
    *,
    behind_others: bool = False,
) -> _Try | Queued | Refusal:
    if not request.waits:
        return _refuse(context, request, state, RefusalReason.HELD, departures)
    queued = join(context, request, state, behind_others=behind_others)
    if queued is None:
        return _claim(context, request)
    if state.held < request.limit:
        # Permits were free, but not for those who came first. That may have changed while we
        # joined, and then nobody else would notice.
        vacate(context, request.lock_name, state, asking=request.owner_id)
        return replace(_claim(context, request), waiters_served=True, queued=queued)
    return queued


def _claim(context: LockContext, request: AcquireRequest, state: LockState | None = None) -> _Try:
    """The state, if the claim has failed on it although a permit was free."""
    now_ms = context.clock.wall_ms()
    keep_long = state is not None and runs_short(state, now_ms=now_ms)
    return _Try(claim_permit(request, now_ms=now_ms, keep_long=keep_long))


def _renew_own(context: LockContext, request: AcquireRequest) -> _Try | Grant:
    """A grant that comes late is renewed before anybody relies on it, unless the place is gone."""
    heartbeat = HeartbeatRequest(
        lock_name=request.lock_name, owner_id=request.owner_id, lease_ms=request.lease_ms
    )
    outcome = renew_lease(context, heartbeat)
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
    departures: Departures = NO_DEPARTURES,
) -> Refusal:
    return Refusal(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        reason=reason,
        holders=state.holders,
        retry_after_seconds=advise(context, request, state),
        extended=departures.extended,
        liveness_unknown=departures.unknown,
    )
