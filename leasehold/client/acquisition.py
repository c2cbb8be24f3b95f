"""Acquire, and wait for it: one try that joins the queue, and from then on reads.

ask ──▶ granted
 ▲ └──▶ queued ─▶ look, look, look … ──▶ I am a holder: it was handed over ─▶ granted
 │                  │        └─ deadline ─▶ last look ─▶ leave the queue ─▶ nothing held
 │                  ├─ nobody waits: I was dropped from the queue
 │                  ├─ a permit is free, or a lease over, and nobody does anything about it
 └──────────────────┘

Each look is one strongly consistent read, most of them of the lock; every fourth is of the waiter's
own item, because a lock that others wait for too does not show that one was dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from leasehold.backoff import longest_poll_seconds, poll_seconds, retry_seconds
from leasehold.client.logging import failsafe_logger
from leasehold.client.store_factory import StoreFactory
from leasehold.dynamodb.retry import retry
from leasehold.errors import LockStoreUnavailable, LockWaitTimeout
from leasehold.protocol.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    Queued,
    ReleaseRequest,
    Renewal,
)
from leasehold.protocol.schema import waiter_key
from leasehold.store.lease_expiry import explain_unwatched, seconds_until_free
from leasehold.store.lock_store import LockStore

_logger: Final = failsafe_logger()

_POLLS_PER_PLACE_CHECK: Final = 4
_ASK_AGAIN_SECONDS: Final = 30.0
"""A lock that looked free, and was not to be had, is asked for again after so long unless it
moved."""
_LEAVE_SECONDS: Final = 2.0
_SHORTEST_REQUEST_BUDGET_SECONDS: Final = 1.0
"""For one errand that began within the wait: others may move the lock under it, or it is
throttled."""
_LEAST_FRESHNESS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedGrant:
    """The lock is ours.

    Attributes:
        since: reading of the monotonic clock from which the lease is counted: not after the moment
            at which it was written.
    """

    grant: Grant
    since: float


class Acquisition:
    """One acquisition, from the first try to a grant or to nothing.

    Args:
        stores: the lock table.
        request: what is asked for; its owner_id stays the same however often it is asked.
        wait: longest seconds.
        longest_poll: most seconds between two looks.
        require_open: raises if nobody wants the lock any more.
    """

    def __init__(
        self,
        stores: StoreFactory,
        request: AcquireRequest,
        *,
        wait: float,
        longest_poll: float,
        require_open: Callable[[], None],
    ) -> None:
        self._store_factory = stores
        self._clock = stores.clock
        self._wait = wait
        self._began = self._clock.monotonic()
        self._deadline = self._began + wait
        lease_seconds = request.lease_ms / 1000
        self._longest = longest_poll_seconds(longest_poll=longest_poll, lease_seconds=lease_seconds)
        self._entered_at_ms = self._clock.wall_ms()
        self._request = replace(
            request,
            entered_at_ms=self._entered_at_ms,
            poll_interval_ms=math.ceil(self._longest * 1000),
        )
        self._require_open = require_open
        self._not_held_at = self._began
        self._asked_about: tuple[object, float] = (None, -math.inf)
        self._polls = 0
        self._unknown: LockStoreUnavailable | None = None
        self._failures = 0
        self._free_at = math.inf
        self.holders: tuple[Holder, ...] = ()

    def run(self) -> TimedGrant | None:
        """Returns the grant, or None if there was none in time; then nothing is held or waited for.

        Raises:
            LockStoreUnavailable: the outcome stayed unknown; all was tried to undo it.
        """
        try:
            granted = self._request_permit()
            while granted is None and self._goes_on():
                self._pause()
                self._require_open()
                granted = self._poll() if self._unknown is None else self._request_permit()
        except BaseException:
            # Interrupted, or a defect: what may have been granted, or queued, must not stay.
            self._leave_quietly()
            raise
        if granted is None and self._request.waits:
            self._give_up()
        return granted

    def _give_up(self) -> None:
        try:
            self.leave()
        except Exception:
            raise
        except BaseException:  # Interrupted in the middle of it.
            self._leave_quietly()
            raise

    def _leave_quietly(self) -> None:
        with suppress(Exception):
            self.leave()

    def timed_out(self) -> LockWaitTimeout:
        """The error that tells who had the lock."""
        names = ", ".join(holder.owner_name or "?" for holder in self.holders) or "nobody"
        doubt = self._takeover_hint()
        return LockWaitTimeout(
            f"lock {self._request.lock_name!r}: not handed over within {self._wait:g} s; "
            f"last held by {names}" + (f" ({doubt})" if doubt else "")
        )

    def log_takeover_hint(self) -> None:
        """Logs if it was in vain only because one look is no watch."""
        doubt = self._takeover_hint()
        if doubt:
            _logger.warning("lock %r: not taken; %s", self._request.lock_name, doubt)

    def _takeover_hint(self) -> str:
        return explain_unwatched(
            self._store_factory.lease_expiry, self._request.lock_name, self.holders
        )

    def _goes_on(self) -> bool:
        if self._request.waits and self._clock.monotonic() < self._deadline:
            return True
        if self._unknown is not None:
            raise self._unknown
        return False

    def _pause(self) -> None:
        now = self._clock.monotonic()
        random = self._store_factory.random
        if self._unknown is None:
            seconds = poll_seconds(
                waited=now - self._began,
                longest=self._longest,
                until_free=self._free_at - now,
                random=random,
            )
        else:
            seconds = retry_seconds(self._failures, longest=self._longest, random=random)
        self._clock.wait(max(0.0, min(seconds, self._deadline - now)))

    def _request_permit(self) -> TimedGrant | None:
        """Tries to get the lock; joins the queue, or keeps the place in it, if others have it."""
        sent = self._clock.monotonic()
        grace_ms = 2 * math.ceil(self._longest * 1000)
        waiter_timeout_ms = math.ceil(max(0.0, self._deadline - sent) * 1000) + grace_ms
        try:
            answer = self._store().acquire(
                replace(self._request, waiter_timeout_ms=waiter_timeout_ms)
            )
        except LockStoreUnavailable as error:
            self._unknown = error
            self._failures += 1
            return None
        self._unknown = None
        self._failures = 0
        if isinstance(answer, Grant):
            since = self._not_held_at if answer.repeated else sent
            return self._fresh(TimedGrant(grant=answer, since=since))
        self._not_held_at = sent
        self.holders = answer.holders
        if isinstance(answer, Queued):
            self._entered_at_ms = answer.entered_at_ms
        return None

    def _poll(self) -> TimedGrant | None:
        """One read; asks if that is called for."""
        sent = self._clock.monotonic()
        self._polls += 1
        try:
            if self._polls % _POLLS_PER_PLACE_CHECK == 0 and sent < self._free_at:
                if not self._has_place():
                    return self._request_permit()
                self._not_held_at = sent
                return None
            state = self._store().read_state(self._request.lock_name)
        except LockStoreUnavailable:
            return None  # A read that failed has changed nothing.
        mine = state.holder(self._request.owner_id)
        if mine is not None:
            return self._fresh(TimedGrant(grant=self._handed_over(mine), since=self._not_held_at))
        self._not_held_at = sent
        self.holders = state.holders
        return self._request_permit() if self._is_worth_asking(state) else None

    def _has_place(self) -> bool:
        key = waiter_key(
            self._request.lock_name,
            entered_at_ms=self._entered_at_ms,
            owner_id=self._request.owner_id,
        )
        return bool(self._store_factory.context(deadline=self._request_deadline()).table.read(key))

    def _is_worth_asking(self, state: LockState) -> bool:
        now = self._clock.monotonic()
        needed = state.held - self._request.limit + 1
        self._free_at = math.inf
        if needed > 0 and len(state.holders) >= needed:
            self._free_at = now + seconds_until_free(
                self._store_factory.lease_expiry,
                self._request.lock_name,
                state.holders,
                needed=needed,
            )
        is_open = needed <= 0 or self._free_at <= now
        if state.contended and not is_open:
            return False
        seen = (state.held, state.fencing_token, state.contended, state.holders)
        asked_about, asked_at = self._asked_about
        if seen == asked_about:
            self._free_at = math.inf
            if now < asked_at + _ASK_AGAIN_SECONDS:
                return False
        self._asked_about = (seen, now)
        return True

    def _fresh(self, granted: TimedGrant) -> TimedGrant | None:
        """A grant found late is renewed before anybody relies on it; None if it is gone.

        Also one whose stored end is near: whoever handed it over wrote that by its own clock.
        """
        grant = granted.grant
        sent = self._clock.monotonic()
        left_seconds = (grant.expires_at_ms - self._clock.wall_ms()) / 1000
        least_seconds = grant.lease_ms / 1000 * _LEAST_FRESHNESS
        if granted.since + least_seconds > sent and left_seconds >= least_seconds:
            return granted
        heartbeat = HeartbeatRequest(
            lock_name=self._request.lock_name, owner_id=self._request.owner_id
        )
        try:
            answer = self._store().heartbeat(heartbeat)
        except LockStoreUnavailable as error:
            self._unknown = error
            self._failures += 1
            return None
        if isinstance(answer, Renewal):
            return replace(granted, since=sent)
        self._not_held_at = sent
        return None

    def _handed_over(self, holder: Holder) -> Grant:
        return Grant(
            lock_name=self._request.lock_name,
            owner_id=holder.owner_id,
            fencing_token=holder.fencing_token,
            lease_ms=holder.lease_ms,
            acquired_at_ms=holder.acquired_at_ms,
            expires_at_ms=holder.expires_at_ms,
            repeated=True,
        )

    def leave(self) -> None:
        """Gives up the place, and a grant that came in this moment: it goes to the next waiter."""
        request = ReleaseRequest(
            lock_name=self._request.lock_name,
            owner_id=self._request.owner_id,
            entered_at_ms=self._entered_at_ms,
        )
        store = self._store_factory.store(deadline=self._clock.monotonic() + _LEAVE_SECONDS)
        retry(
            lambda: store.release(request),
            self._store_factory.retry_budget(seconds=_LEAVE_SECONDS),
            repeat_after=lambda error: isinstance(error, LockStoreUnavailable),
        )

    def _store(self) -> LockStore:
        return self._store_factory.store(deadline=self._request_deadline())

    def _request_deadline(self) -> float:
        return max(self._deadline, self._clock.monotonic() + _SHORTEST_REQUEST_BUDGET_SECONDS)
