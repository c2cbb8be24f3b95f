"""Acquires a lock, and waits for it: one try that joins the queue; then mostly reads.

request ─▶ granted
 ▲ └─────▶ queued ─▶ poll, poll, poll … ─▶ this owner holds it: handed over ─▶ granted
 │                    │        └─ deadline ─▶ last poll ─▶ leave the queue ─▶ nothing held
 │                    ├─ no one waits: this waiter was dropped from the queue
 │                    ├─ a permit is free, or a lease over, and no one acts on it (`FreePermit`)
 └────────────────────┘

Each poll is one strongly consistent read, mostly of the lock. Once in 15 s it reads the waiter's
own item: a lock that others wait for too does not show that this waiter was dropped. Every two
minutes the waiter asks again, by its ticket, to keep its place. A poll is left out if this client
knows the answer (`local_waiters.py`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from fairlock.backoff import longest_poll_seconds, retry_seconds
from fairlock.client.connection import TableAccess
from fairlock.client.local_waiters import FreePermit, QueuePosition
from fairlock.client.reporting import LockEventKind, logger
from fairlock.errors import DescribedHolder, LockStoreUnavailable, LockWaitTimeout, Superseded
from fairlock.protocol.description import describe_ceiling, describe_holder
from fairlock.protocol.model import AcquireRequest, Ceiling, Grant, Holder, ReleaseRequest
from fairlock.protocol.outcomes import Queued, RefusalReason
from fairlock.protocol.schema import waiter_key
from fairlock.protocol.waiters import leave_queue
from fairlock.store.acquire import acquire, with_version
from fairlock.store.context import LockContext, has_enough_left
from fairlock.store.keep_alive import take_up
from fairlock.store.queue import count_ahead, read_lock
from fairlock.store.release import release
from fairlock.text import label_of


def _named(holder: DescribedHolder) -> str:
    since = holder.acquired_at.isoformat(sep=" ", timespec="seconds")
    return f"{label_of(holder.owner_name)} since {since}"


_PLACE_CHECK_SECONDS: Final = 15.0
_ASK_AGAIN_SECONDS: Final = 120.0
"""A waiter asks again so often, to keep its place."""
_LONGEST_PLACE_SECONDS: Final = 300.0
"""How long a waiter keeps its place if it does not ask: its process may have died."""
_LEAVE_SECONDS: Final = 2.0
_SHORTEST_REQUEST_BUDGET_SECONDS: Final = 3.0
"""For a request that began within the wait: others may move the lock meanwhile, DynamoDB may
throttle, and the first client for Step Functions takes a busy machine more than a second."""


class Acquisition:
    """One acquisition, from the first try to a grant or to nothing. Its owner_id stays the same."""

    def __init__(
        self,
        access: TableAccess,
        request: AcquireRequest,
        *,
        max_wait: float,
        require_open: Callable[[], None],
    ) -> None:
        self._access = access
        self._clock = access.settings.clock
        self._max_wait = max_wait
        self._began = self._clock.monotonic()
        self._deadline = self._began + max_wait
        self._longest = longest_poll_seconds(
            longest_poll=access.settings.longest_poll, lease_seconds=request.lease_ms / 1000
        )
        self._ticket: int | None = None
        self._asked_at = -math.inf
        self.request = replace(
            request,
            waiting_since_ms=access.aws_clock.now_ms(),
            poll_interval_ms=math.ceil(self._longest * 1000),
            waiter_timeout_ms=self._waiter_timeout_ms(max_wait),
        )
        self._require_open = require_open
        self._waiter = access.local_waiters.add(request.lock_name, request.owner_id)
        self._queue = self._waiter.queue
        self._position = QueuePosition(self._queue, began=self._began)
        self._free_permit = FreePermit(self._clock, access.aws_clock, request)
        self._planned_at = self._place_seen_at = self._began
        self._unknown: LockStoreUnavailable | None = None
        self._failures = 0
        self._is_granted = self._is_settled = False
        self._thread = threading.current_thread()
        self.holders: tuple[Holder, ...] = ()
        self._ceiling: Ceiling | None = None

    def run(self) -> Grant | None:
        """Returns the grant; None if there was none in time: nothing is held or waited for."""
        waits = self.request.waits
        try:
            try:
                self._take_version()
                granted = self._request_permit()
                while granted is None and self._goes_on():
                    self._pause()
                    self._require_open()
                    # After an unknown outcome a read proves nothing: the request may land after it.
                    # The same request under the same owner_id returns what it was granted.
                    granted = self._poll() if self._unknown is None else self._request_permit()
                self._is_granted = granted is not None
            except Superseded:
                self._leave_as_superseded()
                raise
            except BaseException:
                # Interrupted, or a defect: a grant or a place in the queue must not stay behind.
                self._undo()
                raise
            if granted is None and waits:
                # The time is over, but a hand-off may choose this waiter now. Leaving also gives
                # such a grant back; a caller that only went away would hold a lock that no one
                # knows of.
                self._give_up()
            elif granted is None:
                self.settle()
        except Exception as error:
            if not isinstance(error, Superseded):
                self._report(LockEventKind.FAILED, reason=type(error).__name__)
            raise
        finally:
            self._queue.remove(self._waiter)
        if granted is None:
            self._report(LockEventKind.TIMED_OUT if waits else LockEventKind.REFUSED)
        return granted

    def report_grant(self, granted: Grant) -> None:
        """Tells the user's hook of the grant, once there is a lock object for it."""
        self._report(LockEventKind.GRANTED, fencing_token=granted.fencing_token)

    def _take_version(self) -> None:
        """Decides on the version before the first request: each further one names the same."""
        if self.request.only_newest is None:
            return
        with suppress(LockStoreUnavailable):  # Then each request takes its own.
            self.request = with_version(self._context(), self.request)
        self._waiter.only_newest = self.request.only_newest

    def _leave_as_superseded(self) -> None:
        """Leaves the queue, if the hand-off has not taken this waiter out of it."""
        if self._ticket is not None:
            leaving = leave_queue(self._departure, entered_at_ms=self._ticket)
            with suppress(Exception):  # The next departure takes it out.
                if self._context().table.delete(leaving):
                    self.leave()  # Others behind it may have waited for it.
        self.settle()
        self._report(LockEventKind.SUPERSEDED)

    def undo(self) -> None:
        """Gives back what was granted, for a caller that was interrupted before it had a lock."""
        if self._is_granted:
            self._undo()

    def _undo(self) -> None:
        with suppress(Exception):
            self.leave()
        self.settle()  # An interrupt in the middle of this leaves it to the end of the client.

    def leave(self) -> None:
        """Leaves for good; a grant that came in this moment goes to the next waiter.

        Even a try that never waited leaves a mark: a request still on its way would be granted in
        vain.
        """
        self._access.repeat(
            lambda context, _attempt: release(context, self._departure), seconds=_LEAVE_SECONDS
        )
        self.settle()

    @property
    def _departure(self) -> ReleaseRequest:
        return ReleaseRequest(
            lock_name=self.request.lock_name,
            owner_id=self.request.owner_id,
            waits=True,
            ticket=self._ticket,
        )

    @property
    def is_interrupted(self) -> bool:
        """Never: no mutex is held between its requests."""
        return False

    def settle(self) -> None:
        """Notes that nothing is left to be done: a lock object has the grant, or all was tried."""
        self._is_settled = True
        self._queue.remove(self._waiter)  # A task may be cancelled before it runs this.

    def is_settled(self) -> bool:
        """Whether it holds nothing and waits for nothing any more."""
        return self._is_settled

    def is_over(self) -> bool:
        """Whether its place and its lease are over, whatever became of it."""
        left = _LONGEST_PLACE_SECONDS + 2 * self._longest + self.request.lease_ms / 1000
        return self._is_settled or self._clock.monotonic() > self._deadline + left

    def release_at_close(self) -> None:
        """Leaves the queue at the end of a client, if an interrupt has cut off the leaving."""
        try:
            self.leave()
        except Exception:
            logger.exception(
                "lock %r: leaving its queue failed; the place ends by itself",
                self.request.lock_name,
            )

    def is_abandoned(self) -> bool:
        """Whether its thread has left it. One in another thread finds the client closed."""
        return self._thread is threading.current_thread() or not self._thread.is_alive()

    def timed_out(self) -> LockWaitTimeout:
        """The error that names the lock's holders, and who has paused it."""
        described = tuple(map(describe_holder, self.holders))
        names = ", ".join(map(_named, described)) or "no one"
        told = f"not handed over within {self._max_wait:g} s; last held by"
        told = told if self._max_wait else "held by"
        ceiling = describe_ceiling(self._ceiling)
        return LockWaitTimeout(
            f"lock {self.request.lock_name!r}: {told} {names}"
            + (f"; {ceiling}" if ceiling else ""),
            lock_name=self.request.lock_name,
            waited_seconds=self._clock.monotonic() - self._began,
            holders=described,
            ceiling=ceiling,
        )

    def _give_up(self) -> None:
        try:
            self.leave()
        except Exception:
            self.settle()
            raise
        except BaseException:  # Interrupted in the middle of it.
            self._undo()
            raise

    def _goes_on(self) -> bool:
        if self.request.waits and self._clock.monotonic() < self._deadline:
            return True
        if self._unknown is not None:
            raise self._unknown
        return False

    def _pause(self) -> None:
        # Before the alarm: another waiter of this client may read while this one sleeps, and its
        # news counts only if it is younger than this plan.
        now = self._clock.monotonic()
        random = self._access.random
        if self._unknown is None:
            until_free = self._free_permit.expected_at - now
            seconds = self._position.seconds_to_poll(
                now, longest=self._longest, until_free=until_free, random=random
            )
        else:
            seconds = retry_seconds(self._failures, longest=self._longest, random=random)
        self._planned_at = now
        # The deadline ends the pause: one last poll may still find the grant.
        self._waiter.alarm.wait(max(0.0, min(seconds, self._deadline - now)))

    def _request_permit(self) -> Grant | None:
        """Tries to get the lock; joins the queue, or stays in its place, if others have it."""
        # Taken before the request: what comes back was true at that moment at the earliest, so a
        # slow answer can only make this waiter ask too soon, never too late.
        sent = self._clock.monotonic()
        self._asked_at = sent
        request = self.request
        if self._ticket is not None or self._failures:
            timeout_ms = self._waiter_timeout_ms(self._deadline - sent)
            request = replace(request, ticket=self._ticket, waiter_timeout_ms=timeout_ms)
        try:
            # What this client knows of the lock, for the first request of this acquisition.
            is_first = self._ticket is None and not self._failures and self._unknown is None
            seen = self._queue.seen_just_now(sent) if is_first else None
            answer = acquire(self._context(), request, seen=seen)
        except LockStoreUnavailable as error:
            self._note_unknown(error)
            return None
        self._unknown = None
        self._failures = 0
        if isinstance(answer, Grant):
            return self._renew_if_late(answer)
        self.holders, self._ceiling = answer.holders, answer.ceiling
        if isinstance(answer, Queued):
            self._note_place(answer, sent)
        elif answer.reason is RefusalReason.SUPERSEDED:
            raise self._superseded(answer.newest)
        elif answer.reason is RefusalReason.QUEUE_FULL:
            self._position.note_outside()
        return None

    def _waiter_timeout_ms(self, wait: float) -> int:
        """How long a waiter keeps its place that may wait for so many seconds."""
        grace_ms = 2 * math.ceil(self._longest * 1000)
        return math.ceil(min(max(0.0, wait), _LONGEST_PLACE_SECONDS) * 1000) + grace_ms

    def _note_place(self, queued: Queued, sent: float) -> None:
        self._ticket, self._place_seen_at = queued.entered_at_ms, sent
        if queued.seen is None:
            self._waiter.alarm.ring()  # It was handed the lock meanwhile: the next poll is due.
            return
        self._queue.note(queued.seen, sent)
        if queued.position is not None:
            self._position.note(queued.position, queued.seen)

    def _poll(self) -> Grant | None:
        """One read, unless its answer is known; a request if the read shows a reason for one."""
        if self._waiter.newest is not None:
            raise self._superseded(self._waiter.newest)
        if (told := self._waiter.take_grant()) is not None:
            return self._renew_if_late(told, handed_over=True)
        sent = self._clock.monotonic()
        if self._ticket is not None and sent >= self._asked_at + _ASK_AGAIN_SECONDS:
            return self._request_permit()
        if sent < self._deadline and self._is_answer_known(sent):
            return None
        try:
            is_check_due = sent >= self._place_seen_at + _PLACE_CHECK_SECONDS
            if is_check_due and sent < self._free_permit.expected_at:
                return None if self._has_place(sent) else self._request_permit()
            return self._read(sent)
        except LockStoreUnavailable:
            return None  # A read that failed has changed nothing.

    def _read(self, sent: float) -> Grant | None:
        seen = read_lock(self._context(), self.request.lock_name)
        self._queue.note(seen, sent)
        if (found := self._waiter.take_grant()) is not None:
            return self._renew_if_late(found, handed_over=True)
        self.holders, self._ceiling = seen.state.holders, seen.state.ceiling
        owner_id = self.request.owner_id
        if self._position.correct(owner_id, seen) and self._ticket is not None:
            ahead = count_ahead(
                self._context(), self.request.lock_name, owner_id, entered_at_ms=self._ticket
            )
            self._position.note(ahead + 1, seen)
        return self._request_permit() if self._free_permit.is_worth_a_request(seen) else None

    def _is_answer_known(self, now: float) -> bool:
        queue = self._queue
        if queue.seen_at >= self._planned_at:
            return True  # Another waiter has read since; this one plans again by what that shows.
        return now < queue.seen_at + self._longest and queue.is_held_by_this_client()

    def _has_place(self, sent: float) -> bool:
        if self._ticket is None:
            return False
        name, owner_id = self.request.lock_name, self.request.owner_id
        key = waiter_key(name, entered_at_ms=self._ticket, owner_id=owner_id)
        if not self._context().table.read(key):
            return False
        self._place_seen_at = sent
        return True

    def _superseded(self, newest: int | None) -> Superseded:
        version = self.request.only_newest or 0
        return Superseded(lock_name=self.request.lock_name, version=version, newest=newest or 0)

    def _renew_if_late(self, granted: Grant, *, handed_over: bool = False) -> Grant | None:
        """Renews a grant that was found late, or not marked yet; None if it is gone.

        News that come late may tell of the same grant again: then it is asked for once more.
        """
        is_marked = self.request.only_newest is None or not handed_over
        if is_marked and has_enough_left(granted, now=self._clock.monotonic()):
            return granted
        try:
            return take_up(self._context(), self.request)
        except LockStoreUnavailable as error:
            self._note_unknown(error)
            return None

    def _report(self, kind: LockEventKind, **fields: Any) -> None:  # noqa: ANN401 - see `LockEvent`
        self._access.events.report(
            kind,
            lock_name=self.request.lock_name,
            owner_name=self.request.owner_name,
            waited_seconds=self._clock.monotonic() - self._began,
            **fields,
        )

    def _note_unknown(self, error: LockStoreUnavailable) -> None:
        self._unknown = error
        self._failures += 1

    def _context(self) -> LockContext:
        shortest = self._clock.monotonic() + _SHORTEST_REQUEST_BUDGET_SECONDS
        return self._access.context(deadline=max(self._deadline, shortest))
