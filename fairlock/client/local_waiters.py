"""The waiters of one client: what one of them learns of a lock reaches all, without a request.

    this client's release ─▶ hand-off ─▶ state after it ─┐
    a poll of one waiter ─▶ read ─────▶ state ───────────┴▶ LocalQueue.note ─▶ the waiter that
                                                            holds now is woken with its grant

This only brings news sooner. A waiter that gets no notification finds its grant by its own poll;
one that gets it, and has left the queue in this moment, gives the grant back like any other.

Two questions are answered by what is known. `QueuePosition`: how many waiters are in front of this
one, and so when does it poll next? `FreePermit`: is a request worth it now, although no hand-off
has come?
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from fairlock.backoff import Random, poll_seconds
from fairlock.client.local_lease import LeaseState, LocalLease
from fairlock.clock import DATE_RESOLUTION_MS, FRONT_END_MS, AwsClock, Clock, is_over, over_at_ms
from fairlock.protocol.model import AcquireRequest, Grant, LockState, SeenLock
from fairlock.protocol.waiters import MOST_WAITERS
from fairlock.store.context import shown
from fairlock.store.seen_queue import is_superseded

_JUST_NOW_SECONDS: Final = 1.0
"""Clocks that differ by so much order waiters wrongly anyway."""
_MOST_GROWTH: Final = 1.25
_ENDS_BY_A_RELEASE: Final = frozenset({LeaseState.HELD, LeaseState.RELEASING})


class LocalWaiter:
    """One acquisition that waits.

    Attributes:
        alarm: rings when the waiter has been granted the lock, or never will be.
        only_newest: its version, once that is known.
        newest: the version that supersedes it, as far as is known.
    """

    def __init__(self, queue: LocalQueue, owner_id: str, clock: Clock) -> None:
        self.queue: Final = queue
        self.owner_id: Final = owner_id
        self.alarm = clock.alarm()
        self.only_newest: int | None = None
        self.newest: int | None = None
        self._absent_token = -1
        self._granted: Grant | None = None

    def note(self, seen: SeenLock, sent: float) -> None:
        """A state of the lock, from a request of this client that was sent at that reading.

        States may come late: only a token newer than each state without the waiter as a holder is
        news.
        """
        holder = seen.state.holder(self.owner_id)
        if holder is None:
            self._absent_token = max(self._absent_token, seen.state.fencing_token)
            if self.only_newest is not None and is_superseded(seen, self.only_newest):
                self.newest = seen.state.newest
                self.alarm.ring()
        elif holder.fencing_token > self._absent_token:
            if seen.date_ms is not None:  # Else its own poll, which is due now, tells how long.
                grant = Grant.of(self.queue.lock_name, holder, repeated=True)
                self._granted = shown(grant, sent=sent, date_ms=seen.date_ms)
            self.alarm.ring()

    def take_grant(self) -> Grant | None:
        """The grant that the waiter was notified of, once."""
        granted, self._granted = self._granted, None
        return granted


class LocalQueue:
    """The waiters of one lock in this client, and what they know of the lock.

    Attributes:
        seen_at: reading of the monotonic clock of the newest state; -inf if there is none.
        changed_at: that of the first state with the newest fencing token.
        seconds_per_grant: by the last two such states; 0 if unknown.
    """

    def __init__(self, lock_name: str, is_held_here: Callable[[str], bool]) -> None:
        self.lock_name: Final = lock_name
        self.seen_at = -math.inf
        self.changed_at = -math.inf
        self.seconds_per_grant = 0.0
        self._is_held_here = is_held_here
        self._seen = SeenLock(state=LockState())
        self._waiters: dict[str, LocalWaiter] = {}
        self._mutex = threading.RLock()  # A signal handler may release a lock.

    def add(self, owner_id: str, clock: Clock) -> LocalWaiter:
        """An acquisition begins to wait."""
        waiter = self._waiters[owner_id] = LocalWaiter(self, owner_id, clock)
        return waiter

    def remove(self, waiter: LocalWaiter) -> None:
        """The acquisition has ended."""
        self._waiters.pop(waiter.owner_id, None)

    def note(self, seen: SeenLock, sent: float) -> None:
        """The lock, as a request of this client saw it that was sent at that reading."""
        with self._mutex:
            self._note_progress(seen, sent)
            for waiter in list(self._waiters.values()):
                waiter.note(seen, sent)

    def grants_since(self, fencing_token: int) -> int:
        """How many grants there were after that one, as far as was seen."""
        return self._seen.state.fencing_token - fencing_token

    def is_held_by_this_client(self) -> bool:
        """Whether all holders that were seen last are of this client: it will hand over."""
        holders = self._seen.state.holders
        return bool(holders) and all(
            holder.owner_id in self._waiters or self._is_held_here(holder.owner_id)
            for holder in holders
        )

    def seen_just_now(self, now: float) -> SeenLock | None:
        """The lock, if it was seen within the last second, with its waiters if they were, too."""
        is_fresh = now <= self.seen_at + _JUST_NOW_SECONDS
        return self.seen_by_holder(now) if is_fresh else None

    def seen_by_holder(self, now: float) -> SeenLock:
        """The lock as it was seen last, with its oldest waiters if they were seen just now."""
        seen = self._seen
        is_fresh = now <= seen.queue_seen_at + _JUST_NOW_SECONDS
        return seen if is_fresh else SeenLock(state=seen.state)

    def _note_progress(self, seen: SeenLock, sent: float) -> None:
        grants = seen.state.fencing_token - self._seen.state.fencing_token
        if grants < 0 or (grants == 0 and sent < self.seen_at):
            return  # It comes late.
        if grants > 0:
            if self.seen_at > -math.inf:
                self.seconds_per_grant = self._seconds_per_grant(grants, sent)
            self.changed_at = sent
        elif seen.queue_seen_at == -math.inf:
            # It does not tell of the queue, and may come from a waiter that has joined since.
            known = self._seen
            seen = replace(seen, waiters=known.waiters, queue_seen_at=known.queue_seen_at)
        self._seen = seen
        self.seen_at = max(self.seen_at, sent)

    def _seconds_per_grant(self, grants: int, sent: float) -> float:
        """How long each of so many holders held whose grants are new at that reading.

        The first of several may have held for far longer. A waiter that polls late makes each grant
        seem to take longer, so a longer time is believed slowly.
        """
        seconds = max(0.0, sent - self.changed_at) / grants
        if grants > 1:
            seconds = min(seconds, max(0.0, sent - self.seen_at) / (grants - 1))
        known = self.seconds_per_grant
        return min(seconds, known * _MOST_GROWTH) if known else seconds


class LocalWaiters:
    """Finds the waiters of a lock in this client. May be used by several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = threading.RLock()  # A signal handler may acquire and release.
        self._queues: WeakValueDictionary[str, LocalQueue] = WeakValueDictionary()
        self._leases: WeakValueDictionary[str, LocalLease] = WeakValueDictionary()

    def add(self, lock_name: str, owner_id: str) -> LocalWaiter:
        """An acquisition that may have to wait begins."""
        return self._queue(lock_name).add(owner_id, self._clock)

    def add_holder(self, lease: LocalLease) -> LocalQueue:
        """This client holds a lock, until it is released, or lost, or its lease is over."""
        self._leases[lease.owner_id] = lease
        return self._queue(lease.lock_name)

    def note(self, lock_name: str, seen: SeenLock, sent: float) -> None:
        """A lock, as a request of this client saw it that was sent at that reading."""
        queue = self._queues.get(lock_name)
        if queue is not None:
            queue.note(seen, sent)

    def _queue(self, lock_name: str) -> LocalQueue:
        """Lives as long as a waiter or a holder has it."""
        with self._mutex:
            queue = self._queues.get(lock_name)
            if queue is None:
                queue = self._queues[lock_name] = LocalQueue(lock_name, self._is_held)
            return queue

    def _is_held(self, owner_id: str) -> bool:
        lease = self._leases.get(owner_id)
        return lease is not None and not lease.is_over() and lease.state() in _ENDS_BY_A_RELEASE


class QueuePosition:
    """The position of one waiter: counted when it joins, and lower by one with each grant.

    The fencing token, which each poll reads anyway, counts the grants. A waiter in front that gives
    up is no grant, so the position may be too high, until a poll shows the waiter at the head. A
    position that was counted while others joined may be too low.
    """

    def __init__(self, queue: LocalQueue, *, began: float) -> None:
        self._queue = queue
        self._began = began
        self._position = 1
        self._token = 0
        self._joined_token: int | None = None
        self._is_outside = False

    @property
    def ahead(self) -> int:
        """How many waiters are in front, as far as is known."""
        if self._is_outside:
            return MOST_WAITERS
        return max(0, self._position - 1 - self._queue.grants_since(self._token))

    def note(self, position: int, seen: SeenLock) -> None:
        """The position as it was counted, in the queue of this lock or a moment later."""
        self._is_outside = False
        self._position, self._token = position, seen.state.fencing_token
        if self._joined_token is None:
            self._joined_token = self._token

    def note_outside(self) -> None:
        """The queue was full: all who wait are in front, or each would poll like the next."""
        self._is_outside = True

    def correct(self, owner_id: str, seen: SeenLock) -> bool:
        """Corrects the position by the head of the queue; returns whether to count it again."""
        oldest = [waiter.request.owner_id for waiter in seen.waiters]
        if owner_id in oldest:
            self.note(oldest.index(owner_id) + 1, seen)
            return False
        return self.ahead < len(oldest)

    def seconds_to_poll(
        self, now: float, *, longest: float, until_free: float, random: Random
    ) -> float:
        """How long to wait before the next poll; see `poll_seconds`."""
        token = self._joined_token
        return poll_seconds(
            unchanged=now - max(self._queue.changed_at, self._began),
            ahead=self.ahead,
            served=0 if token is None else self._queue.grants_since(token),
            waited=now - self._began,
            seconds_per_grant=self._queue.seconds_per_grant,
            longest=longest,
            until_free=until_free,
            random=random,
        )


_REQUEST_AGAIN_SECONDS: Final = 30.0
"""A lock that seemed free, but was not granted, is requested again after that, or once it moved."""
_DATES_AGREE_SECONDS: Final = 2 * FRONT_END_MS / 1000
"""A lease that was over by one front end's Date is over by that of every other one after that."""


class FreePermit:
    """Finds permits that are free, or whose leases are over, in what the polls of a waiter read.

    Attributes:
        expected_at: when the lease is over that has to end before this acquisition may be granted.
    """

    def __init__(self, clock: Clock, aws_clock: AwsClock, request: AcquireRequest) -> None:
        self._clock = clock
        self._aws_clock = aws_clock
        self._limit = request.limit
        self._last_tried: tuple[object, float] = (None, -math.inf)
        self._is_second_try_due = False
        self.expected_at = math.inf

    def is_worth_a_request(self, lock: SeenLock) -> bool:
        """Whether a request may be granted by the lock as it was read just now.

        Yes if a permit is free or enough leases are over; and if no one waits, because then this
        waiter was dropped from the queue. But no for 30 s if the lock is as it was at the last yes;
        for 1 s if that was the first yes by a lease, whose end another front end may not have seen.
        """
        now, state = self._clock.monotonic(), lock.state
        needed = state.held - state.limit_for(self._limit) + 1  # As the store judges.
        self.expected_at = self._end_of_lease(state, needed, now)
        # As the store will judge, by the Date of an answer that is a little later.
        date_ms = lock.date_ms or 0
        over = [h for h in state.holders if is_over(h.expires_at_ms, date_ms=date_ms)]
        is_open = len(over) >= needed
        if state.contended and not is_open:
            return False
        seen = (state.held, state.fencing_token, state.contended, state.holders)
        last_seen, last_tried_at = self._last_tried
        if seen != last_seen:
            self._is_second_try_due = 0 < needed <= len(state.holders)
        else:
            pause = _DATES_AGREE_SECONDS if self._is_second_try_due else _REQUEST_AGAIN_SECONDS
            self.expected_at = last_tried_at + pause if self._is_second_try_due else math.inf
            if now < last_tried_at + pause:
                return False
            self._is_second_try_due, self.expected_at = False, math.inf
        self._last_tried = (seen, now)
        return True

    def _end_of_lease(self, state: LockState, needed: int, now: float) -> float:
        """When a Date shows that so many leases are over; inf if none has to be, or too few are."""
        if not 0 < needed <= len(state.holders):
            return math.inf
        ends_ms = sorted(over_at_ms(holder.expires_at_ms) for holder in state.holders)
        # A Date is cut to the second: only the next whole second shows that this moment is over.
        shown_ms = -(-ends_ms[needed - 1] // DATE_RESOLUTION_MS) * DATE_RESOLUTION_MS
        return now + (shown_ms - self._aws_clock.now_ms()) / 1000
