"""Acquire: attempt to take a permit, and read from a failed attempt what to do next.

attempt ──▶ written ─────────────────────────────────────▶ granted
  ▲  └────▶ condition failed, with the item as it was
  │           ├─ I am a holder already ──────────────────▶ granted again, same token
  │           ├─ I released before ──────────────────────▶ refused: ALREADY_RELEASED
  │           ├─ a newer version was granted ────────────▶ refused: SUPERSEDED
  │           ├─ others left since I was called ─────────▶ refused: ASK_AGAIN
  │           ├─ leases are over ─▶ take over ─▶ written ▶ granted
  │           │                        │
  └───────────┼────────────────────────┘ the lock has changed since
              └─ all permits are out ────────────────────▶ queued, or refused: HELD
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.errors import InvalidRequest
from fairlock.protocol.admission import SLACK_MS, is_outdated, made_at_ms
from fairlock.protocol.claims import claim_of, read_claim, work_is_over, write_claim
from fairlock.protocol.grants import acquire_permit, acquire_permit_as_seen, take_over_permit
from fairlock.protocol.items import read_granted_token, read_state
from fairlock.protocol.leaving import DepartingHolder, evict
from fairlock.protocol.model import BY_TIME, AcquireRequest, Grant, Holder, LockState, SeenLock
from fairlock.protocol.outcomes import (
    AlreadyHolder,
    LeasesOver,
    Queued,
    Refusal,
    RefusalReason,
    Situation,
    judge,
)
from fairlock.protocol.schema import FENCING_TOKEN, lock_key
from fairlock.protocol.table_requests import Update
from fairlock.store.context import (
    Evicted,
    LockContext,
    MixedLimits,
    pause_or_give_up,
    shown,
    with_right_end,
)
from fairlock.store.hand_off import hand_over
from fairlock.store.keep_alive import check_expired_holders, take_up
from fairlock.store.queue import advise, join

_NO_UPGRADE: Final = (
    "must be true: this owner_id shares the lock, and a shared lock cannot become exclusive; "
    "release it, then acquire with another owner_id"
)
_TRIES_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The next write to try; if it succeeds the caller is a holder.

    Attributes:
        waiters_served: whether all permits that waiters may have were handed over just before.
        follows_eviction: whether this call has just evicted a holder: no one else is in its way.
    """

    update: Update
    now_ms: int
    taken_over: int = 0
    waiters_served: bool = False
    follows_eviction: bool = False


def with_version(context: LockContext, request: AcquireRequest) -> AcquireRequest:
    """The request with its version: its place in the queue, or the present, if it names none.

    A version that is ahead of AWS's time would supersede those that begin after it. So a process
    that does not know that time reads once.
    """
    if request.only_newest != BY_TIME:
        return request
    version = request.claimed_at_ms or request.ticket
    if version is None and context.aws_clock.edges_ms() is None:
        context.table.read(lock_key(request.lock_name))
    return replace(request, only_newest=version or context.now_ms())


def acquire(
    context: LockContext, request: AcquireRequest, *, seen: SeenLock | None = None
) -> Grant | Queued | Refusal:
    """Takes a permit if one is free, or if a holder's lease is over; else waits or is refused.

    One request if a permit is free or all are out; two to take over an expired holder, up to three
    more if that is a workflow's. Four to join the queue, two to keep a place in it (three to learn
    the position, too). One more, before, if the request names a workflow execution: its claim.

    On the first call of an owner `seen` may be the lock as it was just now. If the caller would
    have to wait for it, it joins at once, with one request less, or two if all waiters are named.
    If a permit has become free since, joining is refused, and the caller takes it: one or two
    requests more.
    """
    now_ms = context.now_ms()
    if request.called_at_ms is not None and request.called_at_ms > now_ms + SLACK_MS:
        # By a fast clock: until AWS's time has caught up, nothing would tell a late copy.
        return Refusal.of_late_call(request, now_ms=now_ms)
    request = replace(request, made_at=context.retry_budget.clock.monotonic())
    # The claim before the lock: if this process dies in between, the reaper finds what it may have
    # got. A lock without a claim would be freed by its lease alone.
    if request.execution_arn is not None:
        registered = register_claim(context, request, request.execution_arn)
        if registered is None:
            return _refuse(context, request, LockState(), RefusalReason.ALREADY_RELEASED)
        request = registered
    # After the claim, whose place in the queue is the version of a workflow that names none.
    if request.only_newest is not None:
        request = with_version(context, request)
    return _acquire(context, request, seen)


def _acquire(
    context: LockContext, request: AcquireRequest, seen: SeenLock | None
) -> Grant | Queued | Refusal:
    began, number = context.retry_budget.clock.monotonic(), 0
    # A write is sent without a read before it: what it is refused on is the read.
    step: _Attempt | Grant | Queued | Refusal = _attempt(context, request)
    # What this process saw last may be old. If a permit has become free since, the join is refused
    # on that very condition, so old knowledge costs requests and never a place. But a join must not
    # be the first to learn AWS's time: a place by a clock that is ahead comes after all others.
    knows_time = context.aws_clock.edges_ms() is not None
    if seen is not None and knows_time and _must_wait(request, seen):
        step = _wait_or_refuse(context, request, seen.state, known=seen)
    while isinstance(step, _Attempt):
        attempt = step
        if number:
            # Neither granted nor refused: in the last step the caller may even have become a
            # holder. A pause makes way for others. Behind dead readers it would come once for each.
            pause_or_give_up(
                context,
                request.lock_name,
                began=began,
                attempt=0 if attempt.follows_eviction else number - 1,
                without_pause=_TRIES_AT_ONCE,
            )
        number += 1
        outcome = context.table.update(attempt.update)
        if isinstance(outcome, Written):
            # If the reply is lost, the repeat is refused and finds the caller as a holder: same
            # token. None if the grant was changed while its end was corrected: ask again.
            step = _granted(context, request, attempt, outcome) or _attempt(context, request)
            continue
        state = read_state(outcome.item)
        if is_outdated(state, request.registered_at_ms, date_ms=context.date_ms(outcome)):
            # This call may have stalled until its acquisition was over. What it was shown is new to
            # it all the same, so no condition on that would tell.
            wanted = still_wanted(context, request)
            if wanted is None:
                return _refuse(context, request, LockState(), RefusalReason.ALREADY_RELEASED)
            request = wanted
        # Once a call: each further refusal shows mostly the same holders.
        if number == 1:
            _report_mixed_limits(context, request, state)
        step = _react(context, request, state, attempt, outcome)
    return step


def register_claim(
    context: LockContext, request: AcquireRequest, execution_arn: str
) -> AcquireRequest | None:
    """Writes the claim of an acquisition before it asks for its lock; returns it with its place.

    None if its work has ended, or its execution was found to be over.
    """
    claim = claim_of(request, execution_arn)
    # Before the claim is written: if this call stalls afterwards, while a later call of the same
    # acquisition is granted the lock and releases it, what it asks for counts as that old.
    now_ms = context.now_ms()
    outcome = context.table.update(write_claim(claim, waits=request.waits, now_ms=now_ms))
    if not isinstance(outcome, Written):
        return None
    written = read_claim(execution_arn, outcome.item)
    place = written.entered_at_ms
    # No one waits under a claim that was not there before.
    return replace(
        request,
        claimed_at_ms=place,
        ticket=None if written.revision == 1 else place,
        registered_at_ms=now_ms,
    )


def still_wanted(context: LockContext, request: AcquireRequest) -> AcquireRequest | None:
    """The request of a call as of now, if its claim says that its work is not over; else None."""
    if request.execution_arn is None:
        return request
    now_ms = context.now_ms()  # Before the read: it may be over right after it.
    found = context.table.read(claim_of(request, request.execution_arn).key)
    if not found or work_is_over(found):
        return None
    return replace(request, registered_at_ms=now_ms)


def _granted(
    context: LockContext, request: AcquireRequest, attempt: _Attempt, written: Written
) -> Grant | None:
    """The grant, with its right end; None if another caller has changed it since."""
    token = read_granted_token(written.item, attempt.update)
    holder = request.as_holder(fencing_token=token, now_ms=attempt.now_ms)
    is_first = FENCING_TOKEN not in written.item
    grant = with_right_end(context, request.lock_name, holder, written, first_of_all=is_first)
    return None if grant is None else replace(grant, taken_over=attempt.taken_over)


def _must_wait(request: AcquireRequest, seen: SeenLock) -> bool:
    """Whether all that this owner could do about such a lock is to join its queue."""
    if seen.date_ms is None or not seen.state.contended or not request.waits:
        return False
    return judge(seen.state, request, date_ms=seen.date_ms) is Situation.BUSY


def _report_mixed_limits(context: LockContext, request: AcquireRequest, state: LockState) -> None:
    others = tuple(sorted({h.limit for h in state.holders if not request.suits(h)}))
    if others:
        name, limit = request.lock_name, request.limit
        context.observe(MixedLimits(lock_name=name, limit=limit, holders_limits=others))


def _react(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    failed: _Attempt,
    refusal: ConditionFailed,
) -> _Attempt | Grant | Queued | Refusal:
    """What follows from the state on which an attempt failed: another attempt, or the answer."""
    date_ms = context.date_ms(refusal)
    match judge(state, request, date_ms=date_ms):
        case AlreadyHolder(holder) if holder.shared and not request.shared:
            # "Granted again" would tell a reader that it is alone.
            raise InvalidRequest(field="shared", rule=_NO_UPGRADE, value=False)
        case AlreadyHolder(holder, is_fresh):
            grant = Grant.of(request.lock_name, holder, repeated=True)
            grant = shown(grant, sent=refusal.sent, date_ms=date_ms)
            return grant if is_fresh else _renew_own(context, request)
        case Situation.ALREADY_RELEASED | Situation.SUPERSEDED as found:
            return _refuse(context, request, state, RefusalReason[found.name])
        case Situation.FREE | Situation.OUTDATED as found:
            # A client writes again as seen. An invocation that comes late is code too, and would.
            late = Refusal.of_late_call(request, now_ms=context.now_ms())
            return late if found is Situation.OUTDATED else _attempt(context, request, state)
        # Permits that are free after that are none for the waiters in front: the caller waits
        # behind them.
        case Situation.FREE_FOR_WAITERS if not failed.waiters_served:
            hand_over(context, request.lock_name, state, requester=request.owner_id)
            return replace(_attempt(context, request), waiters_served=True)
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
    name = request.lock_name
    expired = check_expired_holders(context, name, state, candidates, needed=needed)
    evictable, state = expired.evictable, expired.state
    # None may go: they have renewed, run on, or another contender asks about them. So it is a lock
    # like any other that is taken, and the caller waits as behind a living holder.
    if not evictable:
        return _wait_or_refuse(context, request, state, liveness_unknown=expired.unknown)
    if state.contended:
        # The permit is the oldest waiter's, not ours, though we noticed. One at a time: each
        # hand-off changes who may come next, and the next attempt sees whether there are more.
        evicted = DepartingHolder(evictable[0], voluntary=False)
        is_out = hand_over(context, name, state, departing=evicted, requester=request.owner_id)
        return replace(_attempt(context, request), follows_eviction=is_out)
    now_ms = context.now_ms()
    if len(evictable) < needed:
        # The limit was lowered by so much that one acquire cannot make room; this much is done.
        update = evict(name, evictable, now_ms=now_ms, seen=state)
        if isinstance(context.table.update(update), Written):
            context.observe(Evicted(lock_name=name, holders=len(evictable)))
        return _attempt(context, request)
    # One write: if this process dies here, no holder has lost its place for nothing.
    update = take_over_permit(request, evictable, now_ms=now_ms, seen=state)
    return _Attempt(update, now_ms, taken_over=len(evictable))


def _wait_or_refuse(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    *,
    known: SeenLock | None = None,
    liveness_unknown: int = 0,
) -> _Attempt | Grant | Queued | Refusal:
    if not request.waits:
        refusal = _refuse(context, request, state, RefusalReason.HELD)
        return replace(refusal, liveness_unknown=liveness_unknown)
    behind_others = state.has_room(request.limit)
    joined = join(context, request, state, behind_others=behind_others, known=known)
    if joined is None:
        return _attempt(context, request)
    seen = None if isinstance(joined, Refusal) else joined.seen
    if seen is None or not seen.state.has_room(request.limit):
        return joined
    # Permits were free, but not for the waiters in front. That may have changed while the caller
    # joined, and then no one else would notice. The caller itself may be served, by this call or by
    # another; it may have released by now, too, so no permit is asked for again.
    hand_over(context, request.lock_name, seen.state, requester=request.owner_id)
    grant = take_up(context, request)
    return joined if grant is None else replace(grant, repeated=True)


def _attempt(
    context: LockContext, request: AcquireRequest, seen: LockState | None = None
) -> _Attempt:
    """Takes a free permit: whatever the state of the lock, or one that was `seen` to be free."""
    now_ms = context.now_ms()
    if seen is not None:
        return _Attempt(acquire_permit_as_seen(request, seen, now_ms=now_ms), now_ms)
    sent_at_ms = made_at_ms(request, now_ms=now_ms)
    return _Attempt(acquire_permit(request, sent_at_ms=sent_at_ms, now_ms=now_ms), now_ms)


def _renew_own(context: LockContext, request: AcquireRequest) -> _Attempt | Grant:
    """Renews a grant that was found late, before its owner relies on it, unless it is gone."""
    grant = take_up(context, request)
    return _attempt(context, request) if grant is None else replace(grant, repeated=True)


def _refuse(
    context: LockContext, request: AcquireRequest, state: LockState, reason: RefusalReason
) -> Refusal:
    return Refusal(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        reason=reason,
        holders=state.holders,
        retry_after_seconds=advise(context, request, state),
        newest=state.newest,
        ceiling=state.ceiling,
    )
