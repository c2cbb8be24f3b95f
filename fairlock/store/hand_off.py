"""Hand-off: a holder leaves, and the oldest waiter gets its permit.

Release, eviction (the lease is over) and the grant of free permits all end here, so that a
contended lock changes hands in one place.

If the caller is killed between any two of these requests, the lock is whole: state and queue change
together, and a waiter that holds the lock without a notification finds out by its fallback poll.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fairlock.aws.executions import Delivery
from fairlock.aws.lock_table import Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.admission import Unlearned, has_version, newest_first
from fairlock.protocol.expressions import Item, Update
from fairlock.protocol.grants import mark_undelivered
from fairlock.protocol.items import read_state, read_waiter
from fairlock.protocol.leaving import Departing, DepartingHolder, Step, next_step
from fairlock.protocol.model import Liveness, LockState, SeenLock, Waiter, is_dead
from fairlock.protocol.outcomes import Grant, HandOff
from fairlock.protocol.schema import lock_key
from fairlock.protocol.waiters import MOST_DELETES, oldest_waiters
from fairlock.store.context import (
    Evicted,
    HandedOver,
    LockContext,
    PushUnknown,
    outcome_unknown,
    pause_or_give_up,
)
from fairlock.store.newest import SupersededWaiters, if_it_stands
from fairlock.store.queue import remove_places

_MOST_CLEARED: Final = 5 * MOST_DELETES
"""Dead waiters that one departure removes: five transactions, about 0.1 s."""


@dataclass(slots=True, kw_only=True)
class SeenQueue:
    """The queue of a contended lock, read as far as its oldest waiters that still ask.

    Attributes:
        context: the table and its services.
        lock_name: the lock.
        requester: owner_id of a waiter that is asking at this moment, however late.
        began: when the operation that reads it began, by the monotonic clock.
        live: the oldest waiters that still ask, in order; empty if none was found.
        has_more: whether there is more of the queue than was read.
        seen_at: when the queue was as it was read, or a little before, by the monotonic clock.
        is_whole: whether `live` has all waiters that still ask, but for those that were served.
    """

    context: LockContext
    lock_name: str
    requester: str | None
    began: float
    live: list[Waiter] = field(default_factory=list)
    has_more: bool = False
    seen_at: float = -math.inf
    is_whole: bool = False
    _dead: dict[str, Waiter] = field(default_factory=dict)
    """By the sort key."""
    _dropped: set[tuple[str, int]] = field(default_factory=set)
    """Sort keys and ends of waiters of workflows that are over, as they were seen."""
    _superseded: SupersededWaiters | None = None

    def read(self, state: LockState) -> None:
        """Reads the head of the queue, and goes on behind dead waiters until one still asks.

        If no one does, the lock is about to be opened, and no waiter item should stay behind: they
        are removed first if one transaction can do it. One that asked again meanwhile is live.
        """
        while True:
            self._read(state)
            # More dead than one transaction removes are left to `clear`, to later departures and to
            # TTL: no one who leaves should wait for them.
            if self.live or self.has_more or not 0 < len(self._dead) <= MOST_DELETES:
                return
            asked_again = False
            with suppress(LockStoreUnavailable):  # It must not keep an owner from leaving.
                # Each delete is on condition of the end that was read, so one that asked again
                # stays.
                asked_again = self._clear([*self._dead.values()])
                self._dead = {}
            # A waiter that lives must be served by this departure: no later one may come.
            if not asked_again or self._time_is_over():
                return

    @property
    def has_passed_over(self) -> bool:
        """Whether waiters that were read are not `live`, and may ask again."""
        return bool(self._dead)

    def forget(self) -> None:
        """Others have changed the lock: the queue is to be read again."""
        self.live = []

    def serve_head(self) -> None:
        """The head of the queue was handed a permit."""
        self.live = self.live[1:]
        if has_version(self.live[:1]):
            # A higher version may stand behind what was read.
            self.live = [] if self.has_more else newest_first(self.live)

    def drop_execution(self, execution_arn: str) -> None:
        """A workflow is over: none of its waiters that were read is there to be notified.

        One that asks again is of the redriven workflow, and lives.
        """
        for waiter in self.live:
            if waiter.request.execution_arn == execution_arn:
                self._dead[waiter.sort_key] = waiter
                self._dropped.add((waiter.sort_key, waiter.expires_at_ms))
        self.live = [w for w in self.live if w.request.execution_arn != execution_arn]

    def supersede(self, version: int) -> None:
        """A version was granted, and its owner knows: none of the lower ones is served any more."""
        granted = LockState(newest=version)
        for waiter in self.live:
            if granted.supersedes(waiter.request.only_newest):
                self._note_superseded(waiter, version)
        self.live = [w for w in self.live if not granted.supersedes(w.request.only_newest)]

    def clear(self) -> None:
        """Removes dead waiters, some and not all if there is little time; never fails."""
        if self._superseded is not None:
            is_over = self._time_is_over
            self._superseded.tell(self.context, requester=self.requester, time_is_over=is_over)
        dead = [*self._dead.values()][:_MOST_CLEARED]
        with suppress(LockStoreUnavailable):
            for first in range(0, len(dead), MOST_DELETES):
                if self._time_is_over():
                    return
                self._clear(dead[first : first + MOST_DELETES])

    def _read(self, state: LockState) -> None:
        left = {state.last_released, state.last_given_up}
        served = {holder.owner_id for holder in state.holders} | left
        after: Item | None = None
        self.live, self._dead = [], {}
        self.seen_at = self.context.retry_budget.clock.monotonic()
        while True:
            page = self.context.table.query(oldest_waiters(self.lock_name, after=after))
            date_ms = self.context.date_ms(page)
            for waiter in (read_waiter(self.lock_name, item) for item in page.items):
                version = waiter.request.only_newest
                if version is not None and state.supersedes(version):
                    self._note_superseded(waiter, state.newest or 0)
                elif self._is_dead(waiter, served, date_ms=date_ms):
                    self._dead[waiter.sort_key] = waiter
                else:
                    self.live.append(waiter)
            after = page.next
            self.has_more = after is not None
            self.is_whole = not self.has_more
            # The turn of a version is that of the highest one, which may stand at the very end.
            is_version = has_version(self.live[:1])
            if (self.live and not is_version) or not self.has_more or self._time_is_over():
                self.live = newest_first(self.live) if is_version else self.live
                return

    def _note_superseded(self, waiter: Waiter, newest: int) -> None:
        self._dead[waiter.sort_key] = waiter
        self._superseded = self._superseded or SupersededWaiters()
        self._superseded.add(waiter, newest)

    def _is_dead(self, waiter: Waiter, served: set[str | None], *, date_ms: int) -> bool:
        """Whether a waiter is not to be handed the lock. One that asks right now lives."""
        if waiter.owner_id == self.requester:
            return waiter.owner_id in served
        was_dropped = (waiter.sort_key, waiter.expires_at_ms) in self._dropped
        return was_dropped or is_dead(waiter, date_ms=date_ms, served=served)

    def _clear(self, waiters: list[Waiter]) -> bool:
        """Removes waiters; those that asked again stay. Returns whether there were any of these."""
        dead = [waiter.place for waiter in waiters]
        return remove_places(self.context, self.lock_name, dead) < len(dead)

    def _time_is_over(self) -> bool:
        return self.context.retry_budget.is_spent(since=self.began)


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

    A hand-off costs a query and a transaction, however many wait, and a message to the waiter.

    Args:
        context: the table and its services.
        lock_name: the lock.
        state: the lock as it was seen, with the departing holder in it.
        departing: the holder that leaves, or the ceiling; None if there are only free permits.
        requester: owner_id of a waiter that is asking at this moment, who needs no message.
        known: a state with the oldest waiters, if they are known: the first hand-off needs no query
            then.

    Returns:
        Whether the holder was taken out: not if it had left, or renewed its lease, before; nor the
        ceiling if it was changed before.

    Raises:
        LockStoreUnavailable: outcome unknown, or other owners kept changing the lock. What was
            written is whole, and the next caller goes on from there.
    """
    began = context.retry_budget.clock.monotonic()
    queue = SeenQueue(context=context, lock_name=lock_name, requester=requester, began=began)
    # The highest version may be none of those that are known.
    if known is not None and not has_version(known.waiters):
        queue.live, queue.seen_at = list(known.waiters), known.queue_seen_at
        queue.is_whole = known.is_whole
    progress = _Progress(context, queue)
    try:
        has_left = _hand_over(progress, state, departing)
    except LockStoreUnavailable:
        if not progress.has_left:
            raise
        has_left = True  # What is left to do, the next caller does.
    queue.clear()
    return has_left


@dataclass(slots=True)
class _Progress:
    """How far a hand-over is: `has_left` once the holder is out that was to leave."""

    context: LockContext
    queue: SeenQueue
    has_left: bool = False


def _hand_over(progress: _Progress, state: LockState, departing: Departing | None) -> bool:
    context, queue, attempt = progress.context, progress.queue, 0
    has_written = False
    lock_name, began = queue.lock_name, queue.began
    # Each round sends one write on condition of `state`. A process that dies between two rounds
    # leaves a whole lock: the next call on it starts from what it reads, not from what this one
    # planned.
    while departing is None or departing.is_still_in(state):
        # What a holder has set that never learned of its grant is about to be put back.
        put_back = departing.unlearned if departing else None
        # The queue is read after the state: a waiter that joins in between has moved `wait_seq`, so
        # the write that overlooks it is refused.
        if not queue.live:
            queue.read(put_back.undone(state) if put_back else state)
            has_written = False
        now_ms = context.aws_clock.now_ms()
        step = next_step(
            lock_name,
            state,
            queue.live,
            departing,
            unread=queue.has_more,
            passed_over=queue.has_passed_over,
            left_at_ms=context.leaving_ms(state),
            now_ms=now_ms,
        )
        if step is None and has_written and not state.is_full():
            # The oldest waiter has the lowest limit, or it has left the queue since that was read.
            queue.forget()
            continue
        if step is None:
            return progress.has_left
        moved = _send(context, step, state)
        if isinstance(moved, _Moved):
            if moved.is_over:
                return progress.has_left
            # Others were faster. What was read of the queue is as old as the state: read both
            # again.
            pause_or_give_up(context, lock_name, began=began, attempt=attempt)
            _require_known(lock_name, departing, moved)
            queue.forget()
            state, attempt = moved.state, attempt + 1
            departing = if_it_stands(departing, state)
            continue
        # Noted before anything else can fail: from here on an error must not make the caller
        # believe that it still holds.
        progress.has_left = progress.has_left or departing is not None
        _report_eviction(context, lock_name, departing)
        has_written = True
        if step.hand_off is None:
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
        # The grant precedes the message to its waiter. If this process dies here, or the message is
        # lost, the waiter finds its grant when it asks again.
        unlearned = Unlearned.of(step.hand_off.waiter, state, put_back)
        state, departing = _tell(context, step.hand_off, queue, unlearned, step.after)
        if departing is None and not queue.live and not queue.has_more:
            return progress.has_left
    # Gone without a write of ours: by an earlier call whose reply was lost, if its mark is there.
    return progress.has_left or departing.left_before(state)


def _report_eviction(context: LockContext, lock_name: str, departing: Departing | None) -> None:
    if departing is not None and not departing.is_marked:
        context.observe(Evicted(lock_name=lock_name))


@dataclass(frozen=True, slots=True)
class _Moved:
    """A write did not happen, because others changed the lock.

    Attributes:
        state: the lock as it is now.
        repeated: whether the write was sent before, and may have happened then.
        is_over: whether the departure depends on what no longer holds.
    """

    state: LockState
    repeated: bool = False
    is_over: bool = False


def _require_known(lock_name: str, departing: Departing | None, moved: _Moved) -> None:
    """Raises `LockStoreUnavailable` if a holder is gone, and no one can tell who took it out.

    The first sending may have done it and its reply been lost. Only the mark of a departure tells,
    and a later one overwrites it.
    """
    if not moved.repeated or departing is None or not departing.is_marked:
        return
    if not departing.is_still_in(moved.state) and not departing.left_before(moved.state):
        raise outcome_unknown(lock_name, REPLY_LOST)


def _send(context: LockContext, step: Step, state: LockState) -> Written | _Moved:
    """Sends the step's write."""
    if isinstance(step.write, Update):
        outcome = context.table.update(step.write)
        if isinstance(outcome, Written):
            return outcome
        return _Moved(read_state(outcome.item), repeated=outcome.repeated)
    try:
        result = context.table.transact(step.write)
    except LockStoreUnavailable:
        if step.hand_off is not None:
            _wake_if_it_holds(context, step.hand_off)
        raise
    if isinstance(result, Written):
        return result
    # If only the waiter has moved, the state still stands: its conditions guard the next write.
    found = state if result.state is None else read_state(result.state)
    return _Moved(found, is_over=result.check_failed)


def _wake_if_it_holds(context: LockContext, hand_off: HandOff) -> None:
    """Tells a waiter of a hand-off whose answer was lost, if the lock shows that it happened.

    A repeat of the call finds that its holder is out, and nothing of the waiter, which would sleep
    until its fallback poll. What the push finds does not matter: another call may have made this
    very grant from the same state, and told of it, and then the task token is used up.
    """
    grant, task_token = hand_off.grant, hand_off.waiter.request.task_token
    if task_token is None:
        return
    with suppress(LockStoreUnavailable):
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
        now_ms = context.aws_clock.now_ms()
        update = mark_undelivered(grant, now_ms=now_ms, unlearned=unlearned)
        if not isinstance(context.table.update(update), Written) and unlearned is not None:
            # Another owner has set the newest since, or this one has renewed: which also marks.
            context.table.update(mark_undelivered(grant, now_ms=now_ms))
            return state
    return state if unlearned is None else unlearned.undone(state)
