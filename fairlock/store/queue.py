"""The queue of a lock as it is read: who still asks, and who is dead.

A dead waiter has stopped asking, was served already, or belongs to a workflow that is over. Dead
waiters delay nobody: they are skipped while the queue is read, and removed after the permit has
been handed over, as many as there is time for. The next departure removes more, and TTL the rest.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.items import is_waiter, read_place, read_state, read_waiter
from fairlock.protocol.lease_time import is_over
from fairlock.protocol.model import LockState, Place, SeenLock, Waiter
from fairlock.protocol.queue import (
    MOST_DELETES,
    MOST_WAITERS_POLLED,
    clear_waiters,
    lock_and_oldest_waiters,
    oldest_waiters,
    places,
)
from fairlock.protocol.requests import Item
from fairlock.protocol.schema import waiter_sort_key
from fairlock.store.context import LockContext

_MOST_CLEARED: Final = 5 * MOST_DELETES
"""Dead waiters that one departure removes: five transactions, about 0.1 s."""


def read_places(context: LockContext, lock_name: str, *, up_to: str | None = None) -> list[Place]:
    """Who waits; from the head of the queue up to the waiter with a sort key, if it is named."""
    items = context.table.query_all(places(lock_name, up_to=up_to))
    return [read_place(item) for item in items]


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


def count_ahead(
    context: LockContext, lock_name: str, owner_id: str, *, entered_at_ms: int, now_ms: int
) -> int:
    """How many wait in front of a waiter, and still ask: one read of their places."""
    me = waiter_sort_key(entered_at_ms=entered_at_ms, owner_id=owner_id)
    waiting = read_places(context, lock_name, up_to=me)
    others = [place for place in waiting if place.owner_id != owner_id]
    return count_live(others, now_ms=now_ms)


def count_live(waiting: list[Place], *, now_ms: int) -> int:
    """How many of these still ask."""
    return sum(not is_over(place.expires_at_ms, date_ms=now_ms) for place in waiting)


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

    def read(self, state: LockState) -> None:
        """Reads the head of the queue, and goes on behind dead waiters until one still asks.

        If nobody does, the lock is about to be opened, and no waiter item should stay behind: they
        are removed first if one transaction can do it. One that asked again meanwhile is live.
        """
        while True:
            self._read(state)
            if self.live or self.has_more or not 0 < len(self._dead) <= MOST_DELETES:
                return
            asked_again = False
            with suppress(LockStoreUnavailable):  # It must not keep anybody from leaving.
                asked_again = self._clear([*self._dead.values()])
                self._dead = {}
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

    def drop_execution(self, execution_arn: str) -> None:
        """A workflow is over: none of its waiters that were read is there to be told.

        One that asks again is of the redriven workflow, and lives.
        """
        for waiter in self.live:
            if waiter.request.execution_arn == execution_arn:
                self._dead[waiter.sort_key] = waiter
                self._dropped.add((waiter.sort_key, waiter.expires_at_ms))
        self.live = [w for w in self.live if w.request.execution_arn != execution_arn]

    def clear(self) -> None:
        """Removes dead waiters, some and not all if there is little time; never fails."""
        dead = [*self._dead.values()][:_MOST_CLEARED]
        with suppress(LockStoreUnavailable):
            for first in range(0, len(dead), MOST_DELETES):
                if self._time_is_over():
                    return
                self._clear(dead[first : first + MOST_DELETES])

    def _read(self, state: LockState) -> None:
        served = {holder.owner_id for holder in state.holders} | {state.last_released}
        after: Item | None = None
        self.live, self._dead = [], {}
        self.seen_at = self.context.retry_budget.clock.monotonic()
        while True:
            page = self.context.table.query(oldest_waiters(self.lock_name, after=after))
            date_ms = self.context.date_ms(page)
            for waiter in (read_waiter(self.lock_name, item) for item in page.items):
                if self._is_dead(waiter, served, date_ms=date_ms):
                    self._dead[waiter.sort_key] = waiter
                else:
                    self.live.append(waiter)
            after = page.next
            self.has_more = after is not None
            self.is_whole = not self.has_more
            if self.live or not self.has_more or self._time_is_over():
                return

    def _is_dead(self, waiter: Waiter, served: set[str | None], *, date_ms: int) -> bool:
        """Whether a waiter is not to be handed the lock.

        One whose owner holds or has released has entered twice, for instance because the reply that
        told its place was lost.
        """
        request = waiter.request
        if request.owner_id in served:
            return True
        if request.owner_id == self.requester:
            return False
        stopped = is_over(waiter.expires_at_ms, date_ms=date_ms)
        return stopped or (waiter.sort_key, waiter.expires_at_ms) in self._dropped

    def _clear(self, waiters: list[Waiter]) -> bool:
        """Removes waiters; those that asked again stay. Returns whether there were any of these."""
        deletes = clear_waiters(waiters)
        asked_again = self.context.table.delete_all(deletes)
        for_each = zip(waiters, deletes.deletes, strict=True)
        others = [waiter for waiter, delete in for_each if delete not in asked_again]
        if asked_again and others:
            self.context.table.delete_all(clear_waiters(others))
        return bool(asked_again)

    def _time_is_over(self) -> bool:
        return self.context.retry_budget.is_over(since=self.began)
