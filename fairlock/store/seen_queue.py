"""The queue of a contended lock as a departure reads it: who asks, who is dead, who is superseded.

Dead and superseded waiters are taken out of it, and the latter told, after the hand-off: its write
has decided already that they are never granted the lock. So if this process dies in between, they
are found by the next departure, or by their own question.

While a push to the newest is unanswered no one knows whether it lives. Until then the waiters below
it are neither live nor superseded: they stay where they are.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from fairlock.aws.executions import Delivery
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.admission import has_version, newest_first
from fairlock.protocol.items import read_waiter
from fairlock.protocol.leaving import Departing, DepartingHolder
from fairlock.protocol.model import LockState, SeenLock, Waiter, is_dead
from fairlock.protocol.outcomes import Refusal, RefusalReason
from fairlock.protocol.table_requests import Item, Page
from fairlock.protocol.waiters import MOST_DELETES, oldest_waiters
from fairlock.store.context import LockContext, WaitersSuperseded
from fairlock.store.queue import remove_places

_MOST_CLEARED: Final = 5 * MOST_DELETES
"""Dead waiters that one departure removes: five transactions, about 0.1 s."""
_MOST_TOLD: Final = MOST_DELETES
"""By one departure, one message after the other. The others learn it when they ask."""


def is_superseded(seen: SeenLock, version: int) -> bool:
    """Whether a lock that was seen like this is never granted to a waiter with this version."""
    is_telling = seen.state.is_telling(date_ms=seen.date_ms or 0)
    return seen.state.supersedes(version) and not is_telling


def as_left_by(departing: Departing | None, state: LockState) -> LockState:
    """The lock by which its queue is to be judged, while this holder leaves it.

    What its grant has set is put back if no one learned of that. A grant that is released is known.
    """
    if not isinstance(departing, DepartingHolder):
        return state
    if departing.unlearned is not None:
        return departing.unlearned.undone(state)
    holder = state.holder(departing.holder.owner_id)
    if holder is None or not departing.is_marked:
        return state
    return state.with_holder(replace(holder, pushed=False))


def _served(state: LockState) -> set[str | None]:
    """Owners that do not wait, although a waiter of theirs may be found."""
    left = {state.last_released, state.last_given_up}
    return {holder.owner_id for holder in state.holders} | left


@dataclass(slots=True, kw_only=True)
class SeenQueue:
    """The queue of a contended lock, read as far as its oldest waiters that still ask.

    Attributes:
        requester: owner_id of a waiter that is asking at this moment, however late.
        began: when the operation that reads it began, by the monotonic clock.
        live: the oldest waiters that still ask, in order; empty if none was found.
        has_more: whether there is more of the queue than was read.
        seen_at: when the queue was as it was read, or a little before, by the monotonic clock.
        is_whole: whether `live` has all waiters that still ask, but for those that were served.
        _dead: by the sort key.
        _dropped: sort keys and ends of waiters of workflows that are over, as they were seen.
        _superseded: by the sort key: those that are never granted the lock, because of `newest`.
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
    _dropped: set[tuple[str, int]] = field(default_factory=set)
    _superseded: dict[str, Waiter] = field(default_factory=dict)
    _newest: int = 0

    def know(self, known: SeenLock | None) -> None:
        """Takes waiters that were seen before for read, if all of them still asked by then.

        Not with versions: the highest one may be none of those that are known.
        """
        if known is None:
            return
        date_ms, served = known.date_ms, _served(known.state)
        if date_ms is None:
            date_ms = self.context.now_ms()
        is_dead = [self._is_dead(waiter, served, date_ms=date_ms) for waiter in known.waiters]
        if any(is_dead) or has_version(known.waiters):
            return
        self.live, self.seen_at = list(known.waiters), known.queue_seen_at
        self.is_whole, self.has_more = known.is_whole, not known.is_whole

    def read(self, state: LockState) -> None:
        """Reads the head of the queue, and goes on behind dead waiters until one still asks.

        If no one does, the lock is about to be opened, and no waiter item should stay behind: they
        are removed first if one transaction can do it. One that asked again meanwhile is live.
        """
        served = _served(state)
        while True:
            self.live, self._dead, held_back = [], {}, False
            self.seen_at = self.context.retry_budget.clock.monotonic()
            after: Item | None = None
            while True:
                page = self.context.table.query(oldest_waiters(self.lock_name, after=after))
                held_back |= self._sort(page, state, served)
                after = page.next
                # The turn of a version is that of the highest one, which may stand at the very end.
                is_found = self.live and not has_version(self.live[:1])
                if is_found or after is None or self._time_is_over():
                    break
            if has_version(self.live[:1]):
                self.live = newest_first(self.live)
            self.has_more = after is not None or held_back
            self.is_whole = not self.has_more
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
        if self._superseded:
            self._tell_superseded()
        dead = [*self._dead.values()][:_MOST_CLEARED]
        with suppress(LockStoreUnavailable):
            for first in range(0, len(dead), MOST_DELETES):
                if self._time_is_over():
                    return
                self._clear(dead[first : first + MOST_DELETES])

    def _sort(self, page: Page, state: LockState, served: set[str | None]) -> bool:
        """Tells live waiters from dead ones; whether some are neither: the newest may be dead."""
        date_ms, held_back = self.context.date_ms(page), False
        is_telling = state.is_telling(date_ms=date_ms)
        for item in page.items:
            waiter = read_waiter(self.lock_name, item)
            if state.supersedes(waiter.request.only_newest):
                if is_telling:
                    held_back = True
                else:
                    self._note_superseded(waiter, state.newest or 0)
            elif self._is_dead(waiter, served, date_ms=date_ms):
                self._dead[waiter.sort_key] = waiter
            else:
                self.live.append(waiter)
        return held_back

    def _note_superseded(self, waiter: Waiter, newest: int) -> None:
        self._dead[waiter.sort_key] = waiter
        self._superseded[waiter.sort_key] = waiter
        self._newest = max(self._newest, newest)

    def _tell_superseded(self) -> None:
        """Tells those that sleep on a task token; never fails. Polling ones ask by themselves."""
        told = 0
        for waiter in [*self._superseded.values()][:_MOST_TOLD]:
            request = waiter.request
            if self._time_is_over():
                break
            if request.task_token is not None and request.owner_id != self.requester:
                refusal = Refusal(
                    lock_name=self.lock_name,
                    owner_id=request.owner_id,
                    reason=RefusalReason.SUPERSEDED,
                    newest=self._newest,
                )
                delivery = self.context.workflows.wake_waiter(request.task_token, refusal)
                told += delivery is Delivery.DELIVERED
        name, newest, waiters = self.lock_name, self._newest, len(self._superseded)
        found = WaitersSuperseded(lock_name=name, newest=newest, waiters=waiters, told=told)
        self.context.observe(found)

    def _is_dead(self, waiter: Waiter, served: set[str | None], *, date_ms: int) -> bool:
        """Whether a waiter is not to be handed the lock. One that asks right now lives."""
        if waiter.owner_id == self.requester:
            return waiter.owner_id in served
        was_dropped = (waiter.sort_key, waiter.expires_at_ms) in self._dropped
        return was_dropped or is_dead(waiter, date_ms=date_ms, served=served)

    def _clear(self, waiters: list[Waiter]) -> bool:
        """Removes waiters; those that asked again stay. Returns whether there were any of these."""
        return remove_places(self.context, waiters) < len(waiters)

    def _time_is_over(self) -> bool:
        return self.context.retry_budget.is_spent(since=self.began)
