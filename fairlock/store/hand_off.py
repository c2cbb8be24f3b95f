"""Hand-off: a holder leaves, and the oldest waiter gets its permit.

A contended lock changes hands here only. If the caller is killed between any two of these requests,
the lock is whole: state and queue change together, and a waiter that holds the lock without a
notification finds out by its fallback poll.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self

from fairlock.aws.executions import Delivery, Liveness
from fairlock.aws.lock_table import Written
from fairlock.errors import FairlockError, LockStoreUnavailable
from fairlock.protocol.admission import Unlearned
from fairlock.protocol.grants import mark_undelivered
from fairlock.protocol.items import read_state
from fairlock.protocol.leaving import Departing, DepartingHolder, Step, next_step
from fairlock.protocol.model import Grant, LockState, SeenLock
from fairlock.protocol.outcomes import HandOff
from fairlock.protocol.schema import lock_key
from fairlock.protocol.table_requests import Update
from fairlock.store.context import (
    Evicted,
    HandedOver,
    LockContext,
    PushUnknown,
    outcome_unknown,
    pause_or_give_up,
)
from fairlock.store.seen_queue import SeenQueue, as_left_by

REPLY_LOST: Final = "the reply to the release was lost, and other owners changed the lock since"


def hand_over(
    context: LockContext,
    lock_name: str,
    state: LockState,
    *,
    departing: Departing | None = None,
    requester: str | None = None,
    known: SeenLock | None = None,
) -> bool:
    """Takes a holder or a ceiling out of a contended lock; hands permits over while there are any.

    A hand-off costs a query and a transaction, however many wait, and a message to the waiter. The
    state is that with the departing holder in it. The requester is asking at this moment, and needs
    no message. With the oldest waiters `known`, the first hand-off needs no query.

    Returns whether the holder was taken out: not if it had left, or renewed its lease, before; nor
    the ceiling if it was changed before. After an error what was written is whole, and the next
    caller goes on from there.
    """
    began = context.retry_budget.clock.monotonic()
    queue = SeenQueue(context=context, lock_name=lock_name, requester=requester, began=began)
    queue.know(known)
    attempt, has_written = 0, False
    # Each round sends one write on condition of `state`.
    with _Progress(queue) as progress:
        while departing is None or departing.is_still_in(state):
            # What a holder has set that never learned of its grant is about to be put back.
            put_back = departing.unlearned if departing else None
            # The queue is read after the state: a waiter that joins in between has moved
            # `wait_seq`, so the write that overlooks it is refused.
            if not queue.live:
                queue.read(as_left_by(departing, state))
                has_written = False
            step = next_step(
                lock_name,
                state,
                queue.live,
                departing,
                unread=queue.has_more,
                passed_over=queue.has_passed_over,
                now_ms=context.now_ms(),
            )
            if step is None and has_written and not state.is_full():
                # The oldest waiter has the lowest limit, or it has left the queue since that was
                # read. A lock with room for others must not be left to wait for it.
                queue.forget()
                continue
            if step is None:
                return progress.has_left
            moved = _send(context, step, state)
            if isinstance(moved, _Moved):
                if moved.is_over:
                    return progress.has_left
                # Others were faster. What was read of the queue is as old as the state: read both
                # again, because a waiter that they served must not be served twice.
                pause_or_give_up(context, lock_name, began=began, attempt=attempt)
                _require_known(lock_name, departing, moved)
                queue.forget()
                state, attempt = moved.state, attempt + 1
                departing = _if_it_stands(departing, state, has_left=progress.has_left)
                continue
            # Noted before anything else can fail: from here on an error must not make the caller
            # believe that it still holds.
            progress.has_left = progress.has_left or departing is not None
            _report_eviction(context, lock_name, departing)
            has_written = True
            if step.hand_off is None:
                # No one was there to serve. Waiters that were read but not chosen may be now: the
                # departure has made room, and no later one may come.
                if not queue.live:
                    return progress.has_left
                state, departing = step.after, None
                continue
            queue.serve_head()
            after = SeenLock(
                state=step.after,
                waiters=tuple(queue.live),
                queue_seen_at=queue.seen_at,
                is_whole=queue.is_whole,
                date_ms=moved.date_ms,
            )
            context.note_hand_off(lock_name, after, moved.sent)
            # The grant precedes the message to its waiter: the other order would tell a waiter of a
            # grant that a condition may still refuse. If this process dies here, or the message is
            # lost, the waiter finds its grant when it asks again.
            unlearned = Unlearned.of(step.hand_off.waiter, state, put_back)
            state, departing = _tell(context, step.hand_off, queue, unlearned, step.after)
            is_all = not queue.live and not queue.has_more
            if departing is None and (is_all or state.is_full()):
                return progress.has_left
    # Gone without a write of ours: by an earlier call whose reply was lost, if its mark is there.
    return progress.has_left or (departing is not None and departing.left_before(state))


@dataclass(slots=True)
class _Progress:
    """How far a hand-over is: `has_left` once the holder is out that was to leave.

    An outage after that is no error: its caller holds nothing, and the next one does the rest.
    """

    queue: SeenQueue
    has_left: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if error is not None and not (isinstance(error, LockStoreUnavailable) and self.has_left):
            return False
        # Last: waiters that wait for nothing more must delay no one that is served.
        self.queue.clear()
        return True


def _if_it_stands(
    departing: Departing | None, state: LockState, *, has_left: bool
) -> Departing | None:
    """The departing holder, with what is to be put back only if no other owner has set it since.

    None if it was a waiter whose message reached no one, behind what `has_left` by this call, and
    it has renewed or is gone: the others that wait have their turn.
    """
    if has_left and departing is not None and not departing.is_still_in(state):
        return None
    if not isinstance(departing, DepartingHolder):
        return departing
    if state.newest_token == departing.holder.fencing_token:
        return departing
    return replace(departing, unlearned=None)


def _report_eviction(context: LockContext, lock_name: str, departing: Departing | None) -> None:
    if departing is not None and not departing.is_marked:
        context.observe(Evicted(lock_name=lock_name))


@dataclass(frozen=True, slots=True)
class _Moved:
    """A write did not happen, because others changed the lock, or its departure's check is false.

    If it was `repeated`, an earlier sending may have happened.
    """

    state: LockState
    repeated: bool = False
    is_over: bool = False


def _require_known(lock_name: str, departing: Departing | None, moved: _Moved) -> None:
    """Raises `LockStoreUnavailable` if a holder is gone, and no mark tells who took it out."""
    if not moved.repeated or departing is None or not departing.is_marked:
        return
    if not departing.is_still_in(moved.state) and not departing.left_before(moved.state):
        raise outcome_unknown(lock_name, REPLY_LOST)


def _send(context: LockContext, step: Step, state: LockState) -> Written | _Moved:
    """Sends the step's write."""
    try:
        if isinstance(step.write, Update):
            outcome = context.table.update(step.write)
        else:
            if step.hand_off is not None and context.note_sending is not None:
                context.note_sending(step.hand_off)
            outcome = context.table.transact(step.write)
    except LockStoreUnavailable:
        if step.hand_off is not None:
            wake_if_it_holds(context, step.hand_off)
        raise
    if isinstance(outcome, Written):
        return outcome
    # If only the waiter has moved, the state still stands: its conditions guard the next write.
    found = state if outcome.elsewhere else read_state(outcome.item)
    return _Moved(found, repeated=outcome.repeated, is_over=outcome.check_failed)


def wake_if_it_holds(context: LockContext, hand_off: HandOff) -> None:
    """Tells a waiter of a hand-off whose answer was lost, if the lock shows that it happened.

    Never fails. A repeat of the call would find nothing of the waiter, which would sleep until its
    fallback poll. What the push finds does not matter: another call may have told of this very
    grant.
    """
    grant, task_token = hand_off.grant, hand_off.waiter.request.task_token
    if task_token is None:
        return
    with suppress(FairlockError):
        holder = read_state(context.table.read(lock_key(grant.lock_name))).holder(grant.owner_id)
        if holder is not None and holder.fencing_token == grant.fencing_token:
            context.workflows.wake_waiter(task_token, grant)


def _tell(
    context: LockContext,
    hand_off: HandOff,
    queue: SeenQueue,
    unlearned: Unlearned | None,
    state: LockState,
) -> tuple[LockState, DepartingHolder | None]:
    """Notifies a waiter of its grant; returns the lock then, and the waiter if it must leave it."""
    request = hand_off.waiter.request
    delivery = Delivery.UNKNOWN
    if request.task_token is not None and request.owner_id != queue.requester:
        delivery = context.workflows.wake_waiter(request.task_token, hand_off.grant)
        if delivery is Delivery.UNKNOWN:
            context.observe(PushUnknown(lock_name=request.lock_name))
    latency_seconds = context.retry_budget.clock.monotonic() - queue.began
    context.observe(
        HandedOver(
            lock_name=request.lock_name,
            fencing_token=hand_off.grant.fencing_token,
            owner_name=request.owner_name,
            execution_arn=request.execution_arn,
            waited_ms=hand_off.waited_ms,
            latency_ms=round(latency_seconds * 1000),
        )
    )
    if delivery is not Delivery.GONE:
        if unlearned is not None:
            queue.supersede(unlearned.version)
        return state, None
    arn, holder = request.execution_arn, state.holder(request.owner_id)
    is_over = arn is None or context.workflows.describe(arn).liveness is Liveness.OVER
    if holder is not None and is_over:
        # It would hold until its lease ends, with the next waiter behind it. So it is evicted in
        # the next round, as any holder that is dead.
        if arn is not None:
            queue.drop_execution(arn)
        return state, DepartingHolder(holder, voluntary=False, unlearned=unlearned)
    return _mark_undelivered(context, hand_off.grant, unlearned, state), None


def _mark_undelivered(
    context: LockContext, grant: Grant, unlearned: Unlearned | None, state: LockState
) -> LockState:
    """Notes that the owner of a grant, which lives, does not know of it; returns the lock then.

    The versions below it are not superseded until it asks again.
    """
    with suppress(LockStoreUnavailable):  # Then its execution's end ends it.
        now_ms = context.now_ms()
        update = mark_undelivered(grant, now_ms=now_ms, unlearned=unlearned)
        if not isinstance(context.table.update(update), Written) and unlearned is not None:
            # Another owner has set the newest since, or this one has renewed: which also marks.
            context.table.update(mark_undelivered(grant, now_ms=now_ms))
            return state
    return state if unlearned is None else unlearned.undone(state)
