"""How a lease goes on: by a renewal, by keep_alive, or because its workflow still runs.

keep_alive is the heartbeats of a state that stands beside a workflow's work:

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
the reaper freed is taken again.

A lease that belongs to a workflow ends with the workflow, not with the time. So an acquire finds
out about the workflow before it evicts its holder (`check_expired_holders`):

the claim ─▶ fenced or ended ──────────────────────────────────────────────▶ may be evicted
    └─▶ extend the lease by 10 s ─▶ written ─▶ Step Functions ─▶ over ─────▶ may be evicted
              └─▶ refused: it renewed, or           ├─▶ runs ──▶ extend by a whole lease
                  another contender asks            └─▶ unknown ▶ extend by 30 s
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from fairlock.aws.executions import Liveness
from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.clock import iso_utc
from fairlock.errors import FairlockError, LockStoreUnavailable
from fairlock.protocol.admission import needs_longer_retention
from fairlock.protocol.claims import (
    Claim,
    claim_of,
    has_ended,
    is_fenced,
    reacquire_after_redrive,
    read_claim,
    record_heartbeat,
    renew_under_fence,
    work_is_over,
)
from fairlock.protocol.grants import ASK_MS, beside_newer, extend_lease, renew, renew_as_seen
from fairlock.protocol.items import read_holder, read_state
from fairlock.protocol.model import (
    BY_TIME,
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    KeepAliveRequest,
    LockState,
)
from fairlock.protocol.schema import lock_key
from fairlock.store.context import (
    Extended,
    LivenessUnknown,
    LockContext,
    outcome_unknown,
    pause_or_give_up,
    with_right_end,
)
from fairlock.store.hand_off import hand_over
from fairlock.store.seen_queue import SeenQueue
from fairlock.text import label_of, printable


class KeepAliveOutcome(Enum):
    """What a heartbeat has found."""

    RENEWED = auto()
    REACQUIRED = auto()
    """The execution had ended, and was redriven; its lock was free."""
    DONE = auto()
    LOST = auto()


def renew_lease(context: LockContext, request: HeartbeatRequest) -> Grant | None:
    """Lets the lease end one lease from now, or later; None if its owner is no holder.

    One request; one more after the first of a process with a wrong clock; and one more if the first
    supposed something else of the grant than is stored: its end, its lease, or that TTL spares the
    item.
    """
    began = context.retry_budget.clock.monotonic()
    update, number = renew(request, now_ms=context.now_ms()), 0
    while True:
        outcome = context.table.update(update)
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            grant = with_right_end(context, request.lock_name, holder, outcome)
            return grant or renew_lease(context, request)
        # The refusal shows why: the grant is gone, or this process supposed something else of it.
        # Only the first is a loss.
        state = read_state(outcome.item)
        found = state.holder(request.owner_id)
        if found is None:
            return None
        pause_or_give_up(context, request.lock_name, began=began, attempt=number)
        request = beside_newer(request, state)
        now_ms, number = context.now_ms(), number + 1
        retain_long = needs_longer_retention(state, now_ms=now_ms)
        update = renew_as_seen(request, found, now_ms=now_ms, retain_long=retain_long)


def take_up(context: LockContext, request: AcquireRequest) -> Grant | None:
    """Renews a grant that its owner has found, before it relies on it; None if it is gone.

    A waiter that polls may have died, so its hand-off marked nothing as the newest: this does.
    """
    grant = renew_lease(context, request.heartbeat)
    if grant is not None and request.only_newest is not None:
        _supersede_waiters(context, request.lock_name)
    return grant


def _supersede_waiters(context: LockContext, lock_name: str) -> None:
    """Takes waiters that a granted version supersedes out of a queue, and tells them. No errors."""
    began = context.retry_budget.clock.monotonic()
    queue = SeenQueue(context=context, lock_name=lock_name, requester=None, began=began)
    with suppress(LockStoreUnavailable):
        state = read_state(context.table.read(lock_key(lock_name)))
        if state.contended:
            queue.read(state)
            queue.clear()


def keep_alive(context: LockContext, request: KeepAliveRequest) -> KeepAliveOutcome:
    """A heartbeat of a workflow beside its work: two requests.

    Tells a lock that was lost from one that was released because the work has ended, and takes the
    lock again for an execution that had ended and was redriven, if it is free. That grant has a new
    fencing token, of which the workflow does not know: its old one is still refused where a newer
    was seen.
    """
    acquisition = request.acquisition
    claim = claim_of(acquisition, request.execution_arn)
    now_ms = context.now_ms()
    recorded = context.table.update(record_heartbeat(claim, request.task_token, now_ms=now_ms))
    found = recorded.item
    # A record that is refused without a mark means: there is no claim. The lock alone decides then.
    if isinstance(recorded, Written) or not (has_ended(found) or is_fenced(found)):
        if renew_lease(context, acquisition.heartbeat) is not None:
            return KeepAliveOutcome.RENEWED
        # The lock is gone. Read the claim again: a release marks it before it frees the lock, so
        # the mark is there now if the lock went by the work's own release.
        found = context.table.read(claim.key)
    if has_ended(found):
        return KeepAliveOutcome.DONE
    if not is_fenced(found):
        return KeepAliveOutcome.LOST
    # The fence is of the run that ended; what is written over it is of the run that asks now.
    fenced = replace(read_claim(request.execution_arn, found), redrives=acquisition.redrives)
    if acquisition.only_newest == BY_TIME:
        # Without a place it had no version that is known: then any newer one supersedes it.
        acquisition = replace(acquisition, only_newest=fenced.entered_at_ms or 0)
        request = replace(request, acquisition=acquisition)
    return _take_again(context, request, fenced)


def why_lost(context: LockContext, lock_name: str) -> str:
    """What the item says of a loss: a release by force, and who holds the lock now. One request.

    Empty if the table does not answer: to say why is not worth a failure.
    """
    try:
        state = read_state(context.table.read(lock_key(lock_name)))
    except FairlockError:
        return ""
    told = ""
    if forced := state.last_forced_release:
        who, reason = printable(forced.requested_by), printable(forced.reason)
        told = f"; released by force at {iso_utc(forced.at_ms)} by {who}: {reason}"
    names = ", ".join(label_of(each.owner_name) for each in state.holders[:5])
    return f"{told}; held by {names} now" if names else told


def _take_again(context: LockContext, request: KeepAliveRequest, claim: Claim) -> KeepAliveOutcome:
    """For an execution that was reaped, and redriven: it takes the lock again, or still holds."""
    acquisition = request.acquisition
    # Claim and grant in one transaction: a release or a reaper that comes in between moves the
    # claim, and the lock is not taken for work that has ended.
    outcome = _reacquire(context, request, claim)
    if isinstance(outcome, ConditionFailed) and not outcome.elsewhere:
        # The holders name other limits; or a late join has left the mark of a queue. That is taken
        # away first, or a waiter is served: then the state is another one, perhaps without room.
        state = read_state(outcome.item)
        if state.contended and _may_retake(state, acquisition):
            hand_over(context, acquisition.lock_name, state)
            outcome = replace(outcome, item=context.table.read(lock_key(acquisition.lock_name)))
            state = read_state(outcome.item)
        if _may_retake(state, acquisition):
            outcome = _reacquire(context, request, claim, seen=state)
    if isinstance(outcome, Written):
        return KeepAliveOutcome.REACQUIRED
    if not outcome.elsewhere:
        state = read_state(outcome.item)
        # The reaper freed it, and others have the permits by now: this one is lost for good.
        if state.holder(acquisition.owner_id) is None:
            return KeepAliveOutcome.LOST
        # The fence came late, when the execution was redriven already.
        heartbeat = acquisition.heartbeat
        now_ms = context.now_ms()
        renewal = renew_under_fence(claim, heartbeat, state, request.task_token, now_ms=now_ms)
        if isinstance(context.table.transact(renewal), Written):
            return KeepAliveOutcome.RENEWED
    # The claim has moved, not the lock: by a release of the work, or by the reaper.
    elif has_ended(context.table.read(claim.key)):
        return KeepAliveOutcome.DONE
    # The reaper is at work, or another copy of this heartbeat is.
    raise outcome_unknown(acquisition.lock_name, "its claim changed at the same time")


def _may_retake(state: LockState, acquisition: AcquireRequest) -> bool:
    """Whether there is room in this state for an acquisition that does not hold."""
    return state.has_room(acquisition.limit) and state.holder(acquisition.owner_id) is None


def _reacquire(
    context: LockContext, request: KeepAliveRequest, claim: Claim, seen: LockState | None = None
) -> Written | ConditionFailed:
    now_ms, token = context.now_ms(), request.task_token
    retaking = reacquire_after_redrive(claim, request.acquisition, token, now_ms=now_ms, seen=seen)
    return context.table.transact(retaking)


_MOST_CHECKS: Final = 5
"""Executions that one acquire looks at; the rest is left to the next caller."""
_UNANSWERED_MS: Final = 30_000
"""For how long a lease goes on if Step Functions does not say whether its workflow runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredHolders:
    """What became of the holders whose lease is over, and the lock with the leases as extended.

    Those that are `unknown` count as alive only because Step Functions did not say.
    """

    state: LockState
    evictable: tuple[Holder, ...] = ()
    unknown: int = 0


def check_expired_holders(
    context: LockContext,
    lock_name: str,
    state: LockState,
    candidates: Sequence[Holder],
    *,
    needed: int,
) -> ExpiredHolders:
    """Finds holders that may be evicted; extends the leases of workflows that still run."""
    began = context.retry_budget.clock.monotonic()
    found, checks = ExpiredHolders(state=state), 0
    # Judged one by one, and evicted later, on condition of what was seen of each: a holder that
    # renews while we ask about another keeps its place.
    for holder in _in_order_of_cost(candidates, context.random()):
        if len(found.evictable) == needed or checks == _MOST_CHECKS:
            break
        # An undelivered grant has not reached its waiter: no work runs under it, whatever its
        # workflow does.
        if holder.execution_arn is None or holder.is_undelivered:
            found = replace(found, evictable=(*found.evictable, holder))
            continue
        if context.retry_budget.is_spent(since=began):
            break  # Step Functions is slow today, and the caller has more to do.
        checks += 1
        found = _check_execution(context, lock_name, holder, holder.execution_arn, found)
    return found


def _in_order_of_cost(candidates: Sequence[Holder], fraction: float) -> list[Holder]:
    """Holders without a workflow to ask about first; then the others, from a random one onwards.

    In a fixed order a few executions that Step Functions never answers for would take all checks.
    """
    workflows = [h for h in candidates if h.execution_arn is not None and not h.is_undelivered]
    plain = [holder for holder in candidates if holder not in workflows]
    start = int(fraction * len(workflows))
    return [*plain, *workflows[start:], *workflows[:start]]


def _check_execution(
    context: LockContext, lock_name: str, holder: Holder, execution_arn: str, found: ExpiredHolders
) -> ExpiredHolders:
    """Adds what is known of one workflow: first by its claim, then by Step Functions.

    The claim answers for all that the reaper has begun with. DescribeExecution answers 10 to 15
    times a second in an account: only the contender that has extended the lease asks.
    """
    claim = Claim(execution_arn=execution_arn, lock_name=lock_name, owner_id=holder.owner_id)
    if work_is_over(context.table.read(claim.key)):
        # Evicted on condition of the revision that was seen before. A heartbeat that takes the
        # fence away moves the revision, so a redriven holder keeps its place.
        return replace(found, evictable=(*found.evictable, holder))
    ask_ms = min(holder.lease_ms, ASK_MS)
    # Extended before the question: if it were asked first, all contenders would ask, and the answer
    # would be old by the time of the eviction.
    extended = _extend(context, lock_name, holder, lease_ms=ask_ms)
    if extended is None:
        return found  # It has renewed, or another contender asks.
    found = replace(found, state=found.state.with_holder(extended))
    # "Over" is never remembered: a redriven execution has the same ARN.
    liveness = context.workflows.describe(execution_arn).liveness
    if liveness is Liveness.OVER:
        return replace(found, evictable=(*found.evictable, extended))
    # No answer is not "over": a throttle of Step Functions must not cost a holder its lock. The
    # lease goes on for longer than the question took, or each waiter would ask every 10 s.
    is_running = liveness is Liveness.RUNNING
    lease_ms = holder.lease_ms if is_running else min(holder.lease_ms, _UNANSWERED_MS)
    if ask_ms < lease_ms:
        extended = _extend(context, lock_name, extended, lease_ms=lease_ms)
    if extended is None:
        return found
    found = replace(found, state=found.state.with_holder(extended))
    if is_running:
        context.observe(Extended(lock_name=lock_name))
        return found
    context.observe(LivenessUnknown(lock_name=lock_name, execution_arn=execution_arn))
    return replace(found, unknown=found.unknown + 1)


def _extend(
    context: LockContext, lock_name: str, holder: Holder, *, lease_ms: int
) -> Holder | None:
    """The holder with a lease that begins now; None if it is no longer as it was seen."""
    update = extend_lease(lock_name, holder, lease_ms=lease_ms, now_ms=context.now_ms())
    outcome = context.table.update(update)
    return read_holder(outcome.item, holder.owner_id) if isinstance(outcome, Written) else None
