"""The queue of a lock: who still asks, how an owner joins, and when it should ask again.

A dead waiter has stopped asking, was served already, or belongs to a workflow that is over. Dead
waiters delay no one: they are skipped while the queue is read, and removed after the permit has
been handed over, as many as there is time for. The next departure removes more, and TTL the rest.

A caller that cannot get a permit joins, or keeps the place that it has:

has a ticket ─▶ keep the place ─▶ written ─────────────────────────▶ queued
    │                └──▶ no waiter of mine is there ─┐
    └─ has none ──▶ read who waits ◀──────────────────┘
                      ├─ I do already ─▶ keep that place ──────────▶ queued
                      ├─ as many as may wait ──────────────────────▶ refused: QUEUE_FULL
                      └─ join ─▶ written ─▶ confirm ─▶ still waiting ▶ queued
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.backoff import advise_retry_seconds
from fairlock.clock import over_at_ms
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.admission import SLACK_MS, made_at_ms
from fairlock.protocol.items import is_waiter, read_state, read_waiter
from fairlock.protocol.model import AcquireRequest, LockState, SeenLock, Waiter, is_dead
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS, WAITER_GRACE_MS, waiter_sort_key
from fairlock.protocol.waiters import (
    MOST_DELETES,
    MOST_PAGES_READ,
    MOST_PLACES_OF_AN_EXECUTION,
    MOST_WAITERS,
    MOST_WAITERS_POLLED,
    clear_waiters,
    confirm_join,
    join_queue,
    lock_and_oldest_waiters,
    places,
)
from fairlock.store.context import LockContext


def read_places(
    context: LockContext, lock_name: str, *, up_to: str | None = None
) -> tuple[list[Waiter], bool]:
    """Who waits, up to a sort key if one is named; and whether `MOST_PAGES_READ` were enough."""
    found, query = list[Waiter](), places(lock_name, up_to=up_to)
    for _ in range(MOST_PAGES_READ):
        page = context.table.query(query)
        found += [read_waiter(lock_name, item) for item in page.items]
        if page.next is None:
            return found, True
        query = replace(query, after=page.next)
    return found, False


def remove_places(context: LockContext, waiting: Sequence[Waiter]) -> int:
    """Removes waiters, `MOST_DELETES` at most; returns how many. Those that asked again stay."""
    deletes = clear_waiters(waiting)
    asked_again = context.table.delete_all(deletes) if deletes else ()
    if not asked_again:
        return len(deletes)
    others = [delete for delete in deletes if delete not in asked_again]
    return 0 if not others or context.table.delete_all(others) else len(others)


def read_lock(context: LockContext, lock_name: str) -> SeenLock:
    """The lock and the head of its queue: one strongly consistent read.

    A hand-off at the same moment may be seen in part: the lock before it, and the queue after it.
    """
    seen_at = context.retry_budget.clock.monotonic()
    state, waiters = LockState(), []
    page = context.table.query(lock_and_oldest_waiters(lock_name))
    for item in page.items:
        if is_waiter(item):
            waiters.append(read_waiter(lock_name, item))
        else:
            state = read_state(item)
    # Two waiters may have others behind them.
    is_whole = len(waiters) < MOST_WAITERS_POLLED
    return SeenLock(
        state=state,
        waiters=tuple(waiters),
        queue_seen_at=seen_at,
        is_whole=is_whole,
        date_ms=context.date_ms(page),
    )


def count_ahead(context: LockContext, lock_name: str, owner_id: str, *, entered_at_ms: int) -> int:
    """How many wait in front of a waiter, and still ask: one read of their places."""
    me = waiter_sort_key(entered_at_ms=entered_at_ms, owner_id=owner_id)
    waiting, _ = read_places(context, lock_name, up_to=me)
    others = [place for place in waiting if place.owner_id != owner_id]
    return count_live(others, now_ms=context.now_ms())


def count_live(waiting: list[Waiter], *, now_ms: int) -> int:
    """How many of these still ask."""
    return sum(not is_dead(place, date_ms=now_ms) for place in waiting)


_POLL_SECONDS_PER_POSITION: Final = 5
"""The next in the queue asks at least every 5 s, so that a permit handed to it is not idle for
long."""
_POLLS_MISSED: Final = 2
_POLL_GRACE_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    """One try to get or to keep a place.

    Attributes:
        asked_at_ms: when this call was made.
        advised_seconds: when to ask again, if the position does not make it sooner.
        known: the lock with its whole queue, if that is known.
        is_superseded: whether a later call of the same acquisition waits already.
    """

    context: LockContext
    request: AcquireRequest
    state: LockState
    behind_others: bool
    now_ms: int
    asked_at_ms: int
    advised_seconds: int
    began: float
    known: SeenLock | None = None
    is_superseded: bool = False

    def enter(self, entered_at_ms: int, *, again: bool) -> Written | ConditionFailed:
        called_at_ms = self.request.called_at_ms
        transaction = join_queue(
            self.waiter(entered_at_ms),
            self.state,
            behind_others=self.behind_others,
            again=again,
            sent_at_ms=self.now_ms if called_at_ms is None else called_at_ms,
            now_ms=self.now_ms,
        )
        return self.context.table.transact(transaction)

    def waiter(self, entered_at_ms: int) -> Waiter:
        # How long it keeps its place without asking; one that polls, for two polls.
        keeps_ms = self.request.waiter_timeout_ms
        if keeps_ms is None and self.request.task_token is not None:
            keeps_ms = LONGEST_FALLBACK_SECONDS * 1000 + WAITER_GRACE_MS
        elif keeps_ms is None:
            keeps_ms = _POLLS_MISSED * self.advised_seconds * 1000 + _POLL_GRACE_MS
        return Waiter(
            request=self.request,
            entered_at_ms=entered_at_ms,
            asked_at_ms=self.asked_at_ms,
            expires_at_ms=self.now_ms + keeps_ms,
        )

    def joined(
        self,
        entered_at_ms: int,
        position: int | None,
        *,
        state: LockState | None = None,
        date_ms: int | None = None,
    ) -> Queued:
        """The answer; the state is that after the caller joined, None if it has joined before."""
        seconds, state = self.advised_seconds, state or self.state
        if position is not None:
            seconds = min(seconds, position * _POLL_SECONDS_PER_POSITION)
        return Queued(
            lock_name=self.request.lock_name,
            owner_id=self.request.owner_id,
            entered_at_ms=entered_at_ms,
            position=position,
            holders=self.state.holders,
            retry_after_seconds=seconds,
            ceiling=state.ceiling,
            seen=self._seen(entered_at_ms, position, state, date_ms),
        )

    def _seen(
        self, entered_at_ms: int, position: int | None, state: LockState, date_ms: int | None
    ) -> SeenLock:
        me, seen = self.waiter(entered_at_ms), SeenLock(state=state, date_ms=date_ms)
        if self.known is not None:
            waiters = (*self.known.waiters, me)
            return replace(self.known, state=state, waiters=waiters, date_ms=date_ms)
        if position != 1:
            return seen
        return replace(seen, waiters=(me,), queue_seen_at=self.began, is_whole=True)


def join(
    context: LockContext,
    request: AcquireRequest,
    state: LockState,
    *,
    behind_others: bool,
    known: SeenLock | None = None,
) -> Queued | Refusal | None:
    """Puts the caller into the queue or keeps its place; None if a permit became free meanwhile.

    Three requests to join: a query that counts who waits, the transaction that joins, and the write
    that confirms it. One to keep a place by its ticket, and one more to tell its position. The
    query is left out if the whole queue is `known`, by a caller that cannot be in it.
    """
    now_ms = context.now_ms()
    began = context.retry_budget.clock.monotonic()
    advised = advise(context, request, state)
    asked_at_ms = now_ms - _age_ms(context, request)
    entry = _Entry(context, request, state, behind_others, now_ms, asked_at_ms, advised, began)
    if known is not None and known.is_whole and request.ticket is None:
        entry = replace(entry, known=known)
    if request.ticket is not None:
        # The ticket is the caller's word: it counts only if a waiter of this owner stands there. So
        # a forged one, or one of a waiter that was removed as dead, gets no place before others.
        kept = entry.enter(request.ticket, again=True)
        if isinstance(kept, Written):
            return entry.joined(request.ticket, _position(entry, request.ticket))
        # The lock itself refused: a permit is free, or the caller holds or has left.
        if not kept.elsewhere:
            return None
    return _join_again(entry)


def _join_again(entry: _Entry) -> Queued | Refusal | None:
    context, request, now_ms = entry.context, entry.request, entry.now_ms
    waiting, is_whole = (
        read_places(context, request.lock_name)
        if entry.known is None
        else (list(entry.known.waiters), True)
    )
    # Its first join was written and the reply lost: a second entry would wait behind its own first.
    mine = [place for place in waiting if place.owner_id == request.owner_id]
    if mine:
        entry = _newest_call(entry, mine)
        # A workflow's place is in its claim, where the reaper looks: any other would outlive its
        # workflow.
        if entry.is_superseded or request.claimed_at_ms is None:
            place = mine[0].entered_at_ms
            if entry.is_superseded or isinstance(entry.enter(place, again=True), Written):
                return entry.joined(place, _position(entry, place))
            return None
    # By a count that is as old as the query: a few more than allowed may join at once, which costs
    # reads and no lock.
    refusal = _not_to_join(entry, waiting, is_whole=is_whole)
    if refusal is not None:
        return refusal
    entered_at_ms = now_ms if request.claimed_at_ms is None else request.claimed_at_ms
    # If this process dies after the write, the waiter stands unconfirmed: a departing holder may
    # close the queue without it. It finds that out when it asks again.
    if not isinstance(entry.enter(entered_at_ms, again=False), Written):
        return None
    confirmed = context.table.update(confirm_join(request, now_ms=now_ms))
    ahead = [place for place in waiting if place.entered_at_ms <= entered_at_ms]
    position = count_live(ahead, now_ms=now_ms) + 1
    if not isinstance(confirmed, Written):
        # Handed over meanwhile: it gets a message, or asks again. A further try of this call might
        # land when it has released.
        return replace(entry.joined(entered_at_ms, position), seen=None)
    state = read_state(confirmed.item)
    return entry.joined(entered_at_ms, position, state=state, date_ms=confirmed.date_ms)


def _not_to_join(entry: _Entry, waiting: list[Waiter], *, is_whole: bool) -> Refusal | None:
    """The answer to a caller that may not join a queue in which these wait; None if it may."""
    context, request = entry.context, entry.request
    length = count_live(waiting, now_ms=entry.now_ms)
    if length >= MOST_WAITERS or not is_whole or _has_many(entry, waiting):
        if not is_whole:
            # Makes room in a queue that is too long to be read: while no one leaves, no one else
            # does.
            dead = [each for each in waiting if is_dead(each, date_ms=entry.now_ms)]
            with suppress(LockStoreUnavailable):
                remove_places(context, dead[:MOST_DELETES])
        return Refusal(
            lock_name=request.lock_name,
            owner_id=request.owner_id,
            reason=RefusalReason.QUEUE_FULL,
            holders=entry.state.holders,
            retry_after_seconds=entry.advised_seconds,
            ceiling=entry.state.ceiling,
        )
    now_ms, claimed_at_ms = context.now_ms(), request.claimed_at_ms
    if claimed_at_ms is None and made_at_ms(request, now_ms=now_ms) + SLACK_MS < now_ms:
        # Its caller may have called again, and that call joins in this moment. Neither would see
        # the other's place, and the second place would be handed the lock for no one.
        return Refusal.of_late_call(request, now_ms=now_ms)
    return None


def _newest_call(entry: _Entry, mine: list[Waiter]) -> _Entry:
    """The entry with a time that is later than that of any earlier call of this waiter.

    A later time that is there was made by a clock ahead of ours. Or this call has stalled, and its
    caller has made that one, whose task token a hand-off must find: not within the slack.
    """
    latest_ms = max(place.asked_at_ms for place in mine)
    if latest_ms <= entry.asked_at_ms:
        return entry
    if _age_ms(entry.context, entry.request) > SLACK_MS:
        return replace(entry, is_superseded=True)
    return replace(entry, asked_at_ms=latest_ms + 1)


def _age_ms(context: LockContext, request: AcquireRequest) -> int:
    """For how long a call has been under way, by our own monotonic clock."""
    if request.made_at is None:
        return 0
    return round((context.retry_budget.clock.monotonic() - request.made_at) * 1000)


def _has_many(entry: _Entry, waiting: list[Waiter]) -> bool:
    """Whether the caller's execution has as many places as it may have."""
    execution_arn = entry.request.execution_arn
    if execution_arn is None:
        return False
    own = [place for place in waiting if place.request.execution_arn == execution_arn]
    return count_live(own, now_ms=entry.now_ms) >= MOST_PLACES_OF_AN_EXECUTION


def _position(entry: _Entry, entered_at_ms: int) -> int | None:
    """The position of a waiter that keeps its place, if its caller wants to know."""
    request = entry.request
    if request.task_token is not None or request.poll_interval_ms is not None:
        return None
    ahead = count_ahead(
        entry.context, request.lock_name, request.owner_id, entered_at_ms=entered_at_ms
    )
    return ahead + 1


def advise(context: LockContext, request: AcquireRequest, state: LockState) -> int:
    """When to ask again, in whole seconds."""
    times = (request.waiting_since_ms, request.claimed_at_ms, request.ticket)
    began_ms = next((at_ms for at_ms in times if at_ms), None)
    return advise_retry_seconds(
        now_ms=context.now_ms(),
        waiting_since_ms=began_ms,
        lease_ends_ms=[over_at_ms(holder.expires_at_ms) for holder in state.holders],
        random=context.random,
    )
