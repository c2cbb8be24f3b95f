"""Acquire: attempt to take a permit, and read from a failed attempt what to do next.

attempt ──▶ written ─────────────────────────────────────▶ granted
  ▲  └────▶ condition failed, with the item as it was
  │           ├─ I am a holder already ──────────────────▶ granted again, same token
  │           ├─ I released before ──────────────────────▶ refused: ALREADY_RELEASED
  │           ├─ leases are over ─▶ take over ─▶ written ▶ granted
  │           │                        │
  └───────────┼────────────────────────┘ the lock has changed since
              └─ all permits are out ────────────────────▶ queued, or refused: HELD
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from leasehold.dynamodb.lock_table import Written
from leasehold.protocol.claims import claim_of, claim_stands
from leasehold.protocol.departure import DepartingHolder
from leasehold.protocol.items import read_granted_token, read_state
from leasehold.protocol.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    Queued,
    Refusal,
    RefusalReason,
    SeenLock,
)
from leasehold.protocol.permits import (
    acquire_permit,
    acquire_permit_as_seen,
    evict,
    take_over_permit,
)
from leasehold.protocol.requests import Item, Transaction, Update
from leasehold.protocol.verdict import AlreadyHolder, LeasesOver, Situation, judge
from leasehold.store.context import LockContext
from leasehold.store.events import Evicted, MixedLimits
from leasehold.store.hand_over import hand_over, pause_or_give_up
from leasehold.store.join import advise, join
from leasehold.store.keep_alive import renew_lease
from leasehold.store.takeover import NONE_EXPIRED, ExpiredHolders, check_expired_holders

_TRIES_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The next write to try; if it succeeds the caller is a holder.

    Attributes:
        now_ms: when the lease begins.
        taken_over: how many holders lose their place by it.
        waiters_served: whether all permits that waiters may have were handed over just before.
        token_before: the fencing token that a transaction depends on.
    """

    write: Update | Transaction
    now_ms: int
    taken_over: int = 0
    waiters_served: bool = False
    token_before: int = 0


def acquire(
    context: LockContext, request: AcquireRequest, *, seen: SeenLock | None = None
) -> Grant | Queued | Refusal:
    """See `LockStore.acquire`."""
    began = context.retry_budget.clock.monotonic()
    attempt = _attempt(context, request)
    if seen is not None and _must_wait(context, request, seen.state):
        first_step = _wait_or_refuse(context, request, seen.state, known=seen)
        if not isinstance(first_step, _Attempt):
            return first_step
        attempt = first_step
    number = 0
    while True:
        outcome = _send(context, attempt)
        if isinstance(outcome, int):
            return _granted(request, attempt, outcome)
        if outcome is None:
            return already_released(request)
        state = read_state(outcome)
        if number == 0:
            _report_mixed_limits(context, request, state)
        step = _react(context, request, state, attempt)
        if not isinstance(step, _Attempt):
            return step
        # Neither granted nor refused: in the last step the caller may even have become a holder.
        pause_or_give_up(
            context, request.lock_name, began=began, attempt=number, without_pause=_TRIES_AT_ONCE
        )
        attempt, number = step, number + 1


def already_released(request: AcquireRequest) -> Refusal:
    """The answer to an acquisition that is over, in whatever state the lock is."""
    reason = RefusalReason.ALREADY_RELEASED
    return Refusal(lock_name=request.lock_name, owner_id=request.owner_id, reason=reason)


def _granted(request: AcquireRequest, attempt: _Attempt, fencing_token: int) -> Grant:
    return Grant(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        fencing_token=fencing_token,
        lease_ms=request.lease_ms,
        acquired_at_ms=attempt.now_ms,
        expires_at_ms=attempt.now_ms + request.lease_ms,
        taken_over=attempt.taken_over,
    )


def _must_wait(context: LockContext, request: AcquireRequest, seen: LockState) -> bool:
    """Whether all that this owner could do about such a lock is to join its queue."""
    now_ms = context.clock.wall_ms()
    is_over = partial(context.is_lease_over, request.lock_name)
    is_busy = judge(seen, request, now_ms=now_ms, is_over=is_over) is Situation.BUSY
    return is_busy and seen.contended and request.waits


def _report_mixed_limits(context: LockContext, request: AcquireRequest, state: LockState) -> None:
    others = {holder.limit for holder in state.holders if holder.owner_id != request.owner_id}
    others.discard(request.limit)
    if others:
        found = MixedLimits(
            lock_name=request.lock_name, limit=request.limit, holders_limits=tuple(sorted(others))
        )
        context.observe(found)


def _react(
    context: LockContext, request: AcquireRequest, state: LockState, failed: _Attempt
) -> _Attempt | Grant | Queued | Refusal:
    """What follows from the state on which an attempt failed: another attempt, or the answer."""
    now_ms = context.clock.wall_ms()
    is_over = partial(context.is_lease_over, request.lock_name)
    match judge(state, request, now_ms=now_ms, is_over=is_over):
        case AlreadyHolder(holder, is_fresh):
            grant = Grant.of(request.lock_name, holder, repeated=True)
            return grant if is_fresh else _renew_own(context, request)
        case Situation.ALREADY_RELEASED:
            return _refuse(context, request, state, RefusalReason.ALREADY_RELEASED)
        case Situation.FREE:
            return _attempt_as_seen(context, request, state)
        case Situation.FREE_FOR_WAITERS if not failed.waiters_served:
            return _serve_waiters(context, request, state)
        case LeasesOver(candidates, needed):
            return _take_over(context, request, state, candidates, needed)
        case _:
            return _wait_or_refuse(context, request, state)


def _take_over(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    candidates: Sequence[Holder],
    needed: int,
) -> _Attempt | Grant | Queued | Refusal:
    """Evicts holders whose lease and workflow are over, for the oldest waiter or the caller."""
    expired = check_expired_holders(context, request.lock_name, candidates, needed=needed)
    evictable = expired.evictable
    if not evictable:
        return _wait_or_refuse(context, request, state, expired)
    if state.contended:
        evicted = DepartingHolder(evictable[0], voluntary=False)
        hand_over(context, request.lock_name, state, departing=evicted, requester=request.owner_id)
        return _attempt(context, request)
    now_ms, left_at_ms = context.clock.wall_ms(), context.leaving_ms(state)
    if len(evictable) < needed:
        # The limit was lowered by so much that one acquire cannot make room; this much is done.
        name = request.lock_name
        update = evict(name, evictable, left_at_ms=left_at_ms, now_ms=now_ms, seen=state)
        if isinstance(context.table.update(update), Written):
            context.observe(Evicted(lock_name=request.lock_name, holders=len(evictable)))
        return _attempt(context, request)
    update = take_over_permit(request, evictable, left_at_ms=left_at_ms, now_ms=now_ms, seen=state)
    return _Attempt(update, now_ms, taken_over=len(evictable))


def _wait_or_refuse(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    expired: ExpiredHolders = NONE_EXPIRED,
    *,
    known: SeenLock | None = None,
) -> _Attempt | Grant | Queued | Refusal:
    if not request.waits:
        return _refuse(context, request, state, RefusalReason.HELD, expired)
    behind_others = state.has_room(request.limit)
    joined = join(context, request, state, behind_others=behind_others, known=known)
    if joined is None:
        return _attempt(context, request)
    if isinstance(joined, Refusal):
        return joined
    if joined.state is None or not joined.state.has_room(request.limit):
        return joined.queued
    # Permits were free, but not for the waiters in front. That may have changed while the caller
    # joined, and then nobody else would notice. The caller itself may be served, by this call or by
    # another; it may have released by now, too, so no permit is asked for again.
    hand_over(context, request.lock_name, joined.state, requester=request.owner_id)
    grant = renew_lease(context, _heartbeat_of(request))
    return joined.queued if grant is None else replace(grant, repeated=True)


def _attempt(context: LockContext, request: AcquireRequest) -> _Attempt:
    """Takes a free permit, whatever the state of the lock."""
    now_ms = context.clock.wall_ms()
    sent_at_ms = context.earliest_ms() if request.called_at_ms is None else request.called_at_ms
    return _Attempt(acquire_permit(request, sent_at_ms=sent_at_ms, now_ms=now_ms), now_ms)


def _attempt_as_seen(context: LockContext, request: AcquireRequest, seen: LockState) -> _Attempt:
    """Takes a permit that was free when the attempt before was refused.

    A call of a workflow may have stalled until its acquisition was over, and go on here: then its
    claim says so. A copy on the wire cannot repeat itself, a call is code and does.
    """
    now_ms = context.clock.wall_ms()
    update = acquire_permit_as_seen(request, seen, now_ms=now_ms)
    if request.execution_arn is None:
        return _Attempt(update, now_ms)
    check = claim_stands(claim_of(request, request.execution_arn))
    return _Attempt(Transaction(state=update, other=check), now_ms, token_before=seen.fencing_token)


def _send(context: LockContext, attempt: _Attempt) -> int | Item | None:
    """The fencing token of the grant; or the lock's item; or None if the claim no longer stands."""
    if isinstance(attempt.write, Update):
        outcome = context.table.update(attempt.write)
        if isinstance(outcome, Written):
            return read_granted_token(outcome.item, attempt.write)
        return outcome.item
    result = context.table.transact(attempt.write)
    if not isinstance(result, Written):
        return result.state
    # A transaction returns nothing. It happened on condition that the token was as seen.
    if attempt.token_before:
        return attempt.token_before + 1
    return read_granted_token({}, attempt.write.state)


def _serve_waiters(context: LockContext, request: AcquireRequest, state: LockState) -> _Attempt:
    """Hands free permits over to those who wait, before the caller tries again."""
    hand_over(context, request.lock_name, state, requester=request.owner_id)
    return replace(_attempt(context, request), waiters_served=True)


def _heartbeat_of(request: AcquireRequest) -> HeartbeatRequest:
    return HeartbeatRequest(
        lock_name=request.lock_name, owner_id=request.owner_id, lease_ms=request.lease_ms
    )


def _renew_own(context: LockContext, request: AcquireRequest) -> _Attempt | Grant:
    """Renews a grant that was found late before its owner relies on it, unless it is gone."""
    grant = renew_lease(context, _heartbeat_of(request))
    return _attempt(context, request) if grant is None else replace(grant, repeated=True)


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
        liveness_unknown=expired.unknown,
    )
