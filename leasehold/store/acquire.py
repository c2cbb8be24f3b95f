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

from leasehold.dynamodb.lock_table import Written
from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.items import read_holder, read_state
from leasehold.protocol.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    Queued,
    Refusal,
    RefusalReason,
)
from leasehold.protocol.permits import acquire_permit, evict, take_over_permit
from leasehold.protocol.queue import DepartingHolder
from leasehold.protocol.requests import Update
from leasehold.protocol.retention import needs_longer_retention
from leasehold.protocol.verdict import (
    AlreadyHolder,
    AlreadyReleased,
    Free,
    FreeForWaiters,
    LeasesOver,
    judge,
)
from leasehold.store.context import LockContext
from leasehold.store.events import Evicted
from leasehold.store.hand_over import hand_over
from leasehold.store.join import advise, join
from leasehold.store.renew import renew_lease
from leasehold.store.takeover import NONE_EXPIRED, ExpiredHolders, check_expired_holders

_TRIES_WITHOUT_PAUSE: Final = 3


@dataclass(frozen=True, slots=True)
class _Attempt:
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
    began = context.retry_budget.clock.monotonic()
    attempt = _claim(context, request)
    for number in itertools.count():
        outcome = context.table.update(attempt.update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            return _grant(request, holder, taken_over=attempt.taken_over)
        step = _next_step(context, request, read_state(outcome.item), attempt)
        if not isinstance(step, _Attempt):
            return step
        if context.retry_budget.is_over(since=began):
            break
        if number >= _TRIES_WITHOUT_PAUSE:
            context.retry_budget.pause(number)
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
    context: LockContext, request: AcquireRequest, state: LockState, attempt: _Attempt
) -> _Attempt | Grant | Queued | Refusal:
    now_ms = context.clock.wall_ms()
    is_over = partial(context.is_lease_over, request.lock_name)
    match judge(state, request, now_ms=now_ms, is_over=is_over):
        case AlreadyHolder(holder, is_fresh):
            fresh = _grant(request, holder, repeated=True)
            return fresh if is_fresh else _renew_own(context, request)
        case AlreadyReleased():
            return _refuse(context, request, state, RefusalReason.ALREADY_RELEASED)
        case Free():
            return _claim(context, request, state)
        case FreeForWaiters() if not attempt.waiters_served:
            hand_over(context, request.lock_name, state, requester=request.owner_id)
            return replace(_claim(context, request), waiters_served=True)
        case LeasesOver(candidates, needed):
            return _take_over(context, request, state, candidates, needed)
        case _:
            return attempt.queued or _wait_or_refuse(
                context, request, state, behind_others=attempt.waiters_served
            )


def _take_over(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    candidates: Sequence[Holder],
    needed: int,
) -> _Attempt | Queued | Refusal:
    """Puts out holders whose lease and workflow are over, for the oldest waiter or the caller."""
    expired = check_expired_holders(context, request.lock_name, candidates, needed=needed)
    evictable = expired.evictable
    if state.contended and evictable:
        departing = DepartingHolder(evictable[0], voluntary=False)
        hand_over(
            context, request.lock_name, state, departing=departing, requester=request.owner_id
        )
        return _claim(context, request)
    if evictable and len(evictable) < needed:
        # The limit was lowered by so much that one acquire cannot make room; this much is done.
        update = evict(request.lock_name, evictable, now_ms=context.clock.wall_ms())
        if isinstance(context.table.update(update), Written):
            context.observe(Evicted(lock_name=request.lock_name, holders=len(evictable)))
        return _claim(context, request)
    if not evictable:
        return _wait_or_refuse(context, request, state, expired)
    now_ms = context.clock.wall_ms()
    retain_long = needs_longer_retention(state, now_ms=now_ms)
    update = take_over_permit(request, evictable, now_ms=now_ms, retain_long=retain_long)
    return _Attempt(update, taken_over=len(evictable))


def _wait_or_refuse(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    expired: ExpiredHolders = NONE_EXPIRED,
    *,
    behind_others: bool = False,
) -> _Attempt | Queued | Refusal:
    if not request.waits:
        return _refuse(context, request, state, RefusalReason.HELD, expired)
    queued = join(context, request, state, behind_others=behind_others)
    if queued is None:
        return _claim(context, request)
    if state.held < request.limit:
        # Permits were free, but not for those who came first. That may have changed while we
        # joined, and then nobody else would notice.
        hand_over(context, request.lock_name, state, requester=request.owner_id)
        return replace(_claim(context, request), waiters_served=True, queued=queued)
    return queued


def _claim(
    context: LockContext, request: AcquireRequest, state: LockState | None = None
) -> _Attempt:
    """The state, if the claim has failed on it although a permit was free."""
    now_ms = context.clock.wall_ms()
    retain_long = state is not None and needs_longer_retention(state, now_ms=now_ms)
    return _Attempt(acquire_permit(request, now_ms=now_ms, retain_long=retain_long))


def _renew_own(context: LockContext, request: AcquireRequest) -> _Attempt | Grant:
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
    expired: ExpiredHolders = NONE_EXPIRED,
) -> Refusal:
    return Refusal(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        reason=reason,
        holders=state.holders,
        retry_after_seconds=advise(context, request, state),
        extended=expired.extended,
        liveness_unknown=expired.unknown,
    )
