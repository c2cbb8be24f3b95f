"""Renewing a lease, and keep_alive: the heartbeats of a state that stands beside a workflow's work.

record the heartbeat ─▶ written, or there is no claim ─▶ renew ─▶ written ─────▶ renewed
     │                                                      └────▶ not held ─┐
     └──▶ refused ───────────────▶ the claim as it is ◀──────────────────────┘
                                     ├─ the work has ended ─────────────────▶ done
                                     ├─ fenced: the execution was over, and redriven
                                     │     └─ take the lock again ─▶ free ──▶ taken again
                                     │                          └──▶ taken ─▶ lost
                                     └─ it stands, or there is none ────────▶ lost

Release marks the claim as ended before it frees the lock. So a heartbeat that finds the lock gone
and the claim without that mark has lost the lock, whatever others did in between. Only a lock that
the reaper freed is taken again: a heartbeat may land after its work has failed, and the lock was
released.

How long a holder may rely on a grant, and what is done if a wrong clock has written its end.

The first write of a process knows nothing of AWS's time, and goes by the wall clock. Its answer has
a Date. If the end that was written is wrong by that, the holder writes it once more, now that it
knows better: one request more, for wrong clocks only. A holder that dies in between keeps the lock
taken for as long as its clock was ahead: 5 minutes at most, because AWS refuses the requests of a
clock that is wrong by more.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from fairlock.aws.lock_table import Cancelled, Written
from fairlock.protocol.claims import (
    Claim,
    claim_of,
    has_ended,
    is_fenced,
    reacquire_after_redrive,
    read_claim,
    record_heartbeat,
    renew_under_fence,
)
from fairlock.protocol.expressions import Answer
from fairlock.protocol.items import read_holder, read_state
from fairlock.protocol.lease_time import is_enough, own_ms, was_written_by_a_wrong_clock
from fairlock.protocol.model import (
    HeartbeatRequest,
    Holder,
    KeepAliveRequest,
    LockState,
)
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.permits import correct_grant, needs_longer_retention, renew, renew_as_seen
from fairlock.protocol.schema import lock_key
from fairlock.store.context import LockContext, outcome_unknown, pause_or_give_up
from fairlock.store.hand_off import hand_over


def shown(grant: Grant, *, sent: float, date_ms: int) -> Grant:
    """A grant with its owner's own end, by an answer of that Date to a request of ours."""
    own = own_ms(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms)
    return replace(grant, since=sent, own_ms=own)


def has_enough_left(grant: Grant, *, now: float) -> bool:
    """Whether its owner may begin to rely on a grant; else it renews the lease before."""
    return is_enough((grant.ends_at - now) * 1000, grant.lease_ms)


def with_right_end(
    context: LockContext,
    lock_name: str,
    holder: Holder,
    answer: Answer,
    *,
    first_of_all: bool = False,
) -> Grant | None:
    """The grant that this caller has just written, once its end is right.

    Args:
        context: the table.
        lock_name: the lock.
        holder: as it was written.
        answer: to that write.
        first_of_all: whether its fencing token was made from the clock.

    Returns:
        None if somebody has changed the grant since.
    """
    grant = Grant.of(lock_name, holder)
    date_ms = context.date_ms(answer)
    if was_written_by_a_wrong_clock(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms):
        update = correct_grant(
            lock_name, holder, raises_token=first_of_all, now_ms=context.aws_clock.now_ms()
        )
        answer = context.table.update(update)
        if not isinstance(answer, Written):
            return None
        grant = Grant.of(lock_name, read_holder(answer.item, holder.owner_id))
        date_ms = context.date_ms(answer)
    return shown(grant, sent=answer.sent, date_ms=date_ms)


class KeepAliveOutcome(Enum):
    """What a heartbeat has found."""

    RENEWED = auto()
    REACQUIRED = auto()
    """The execution had ended, and was redriven; its lock was free."""
    DONE = auto()
    LOST = auto()


def renew_lease(context: LockContext, request: HeartbeatRequest) -> Grant | None:
    """Lets the lease end one lease from now, or later; None if its owner is no holder.

    One request; one more if our clock is wrong and this was the first request of the process; and
    one more if the first supposed something else of the grant than is stored: that it ends no later
    than asked, has the usual lease if the request names none, and is on an item that TTL spares
    (`retention.py`).

    Raises:
        LockStoreUnavailable: outcome unknown, or other heartbeats kept changing the grant.
    """
    began = context.retry_budget.clock.monotonic()
    update, number = renew(request, now_ms=context.aws_clock.now_ms()), 0
    while True:
        outcome = context.table.update(update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            grant = with_right_end(context, request.lock_name, holder, outcome)
            return grant or renew_lease(context, request)
        state = read_state(outcome.item)
        found = state.holder(request.owner_id)
        if found is None:
            return None
        pause_or_give_up(context, request.lock_name, began=began, attempt=number)
        now_ms, number = context.aws_clock.now_ms(), number + 1
        retain_long = needs_longer_retention(state, now_ms=now_ms)
        update = renew_as_seen(request, found, now_ms=now_ms, retain_long=retain_long)


def keep_alive(context: LockContext, request: KeepAliveRequest) -> KeepAliveOutcome:
    """A heartbeat of a workflow beside its work: two requests.

    Tells a lock that was lost from one that was released because the work has ended, and takes the
    lock again for an execution that had ended and was redriven, if it is free. The fencing token is
    then a new one, which the workflow does not know: its old one is still refused where a newer was
    seen.
    """
    acquisition = request.acquisition
    claim = claim_of(acquisition, request.execution_arn)
    now_ms = context.aws_clock.now_ms()
    recorded = context.table.update(record_heartbeat(claim, request.task_token, now_ms=now_ms))
    found = recorded.item
    # A record that is refused without a mark means: there is no claim. The lock alone decides then.
    if isinstance(recorded, Written) or not (has_ended(found) or is_fenced(found)):
        if renew_lease(context, acquisition.heartbeat) is not None:
            return KeepAliveOutcome.RENEWED
        # The lock is gone. Read the claim again: a release marks it before it frees the lock, so
        # the
        # mark is there now if the lock went by the work's own release.
        found = context.table.read(claim.key)
    if has_ended(found):
        return KeepAliveOutcome.DONE
    if not is_fenced(found):
        return KeepAliveOutcome.LOST
    return _take_again(context, request, read_claim(request.execution_arn, found))


def _take_again(context: LockContext, request: KeepAliveRequest, claim: Claim) -> KeepAliveOutcome:
    """For an execution that was reaped, and redriven: it takes the lock again, or still holds."""
    acquisition = request.acquisition
    # Claim and grant in one transaction: a release or a reaper that comes in between moves the
    # claim,
    # and the lock is not taken for work that has ended.
    outcome = _reacquire(context, request, claim)
    if isinstance(outcome, Cancelled) and outcome.state is not None:
        state = read_state(outcome.state)
        is_free = state.has_room(acquisition.limit)
        if is_free and state.holder(acquisition.owner_id) is None:
            # The holders name other limits; or a late join has left the mark of a queue.
            if state.contended:
                hand_over(context, acquisition.lock_name, state)
                state = read_state(context.table.read(lock_key(acquisition.lock_name)))
            outcome = _reacquire(context, request, claim, seen=state)
    if isinstance(outcome, Written):
        return KeepAliveOutcome.REACQUIRED
    if outcome.state is not None:
        holder = read_state(outcome.state).holder(acquisition.owner_id)
        # The reaper freed it, and others have the permits by now: this one is lost for good.
        if holder is None:
            return KeepAliveOutcome.LOST
        # The fence came late, when the execution was redriven already.
        heartbeat = acquisition.heartbeat
        now_ms = context.aws_clock.now_ms()
        renewal = renew_under_fence(claim, heartbeat, holder, request.task_token, now_ms=now_ms)
        if isinstance(context.table.transact(renewal), Written):
            return KeepAliveOutcome.RENEWED
    elif has_ended(context.table.read(claim.key)):
        return KeepAliveOutcome.DONE
    # The reaper is at work, or another copy of this heartbeat is.
    raise outcome_unknown(acquisition.lock_name, "its claim changed at the same time")


def _reacquire(
    context: LockContext, request: KeepAliveRequest, claim: Claim, seen: LockState | None = None
) -> Written | Cancelled:
    now_ms = context.aws_clock.now_ms()
    return context.table.transact(
        reacquire_after_redrive(
            claim, request.acquisition, request.task_token, now_ms=now_ms, seen=seen
        )
    )
