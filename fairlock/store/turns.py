"""Taking a turn: a slot is reserved by one write, and its caller waits until it begins.

AWS's time is known ─▶ reserve ─▶ reserved ──▶ wait ─▶ it begins
 │ no: one read            │          │  └▶ the time cannot be read: a repeat waits on
 │                         │          └─▶ its answer or the caller was late, the slot is over ─┐
 │                         └─▶ refused ─▶ the item shows why                                   │
 └──────────────────────────────────────▶ mine: its reply was lost, so it is found             │
                                          idle or busy: the other form of the write ◀──────────┘
                                          too late: nothing is written
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from fairlock.aws.lock_table import ConditionFailed, Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.pace import (
    MICROSECONDS,
    AwsTime,
    PaceRequest,
    PaceState,
    Slot,
    TooLate,
    idle_state,
    read_pace,
    reserve_idle,
    reserve_next,
)
from fairlock.protocol.schema import pace_key
from fairlock.store.context import LockContext

_MOST_NAMES: Final = 1_000
_LONGEST_SLEEP_US: Final = 600 * MICROSECONDS
"""Then the time is read: an estimate is 0.3 s worse after ten minutes, and a slot lasts 3 s."""
_SHORTEST_SLEEP_US: Final = 1_000


class KnownPaces:
    """The next slot of each name as this process saw it last: tells which form to write first.

    A next slot only moves on. So one that was in the future is there still, or later. What is
    forgotten, or was never seen, costs a busy name's caller a second write.
    """

    def __init__(self) -> None:
        self._next_us: OrderedDict[str, int] = OrderedDict()

    def next_us(self, name: str) -> int:
        """The next slot; long ago if nothing is known."""
        return self._next_us.get(name, 0)

    def note(self, name: str, state: PaceState | None) -> None:
        """Remembers what an answer has shown; for any thread."""
        self._next_us[name] = 0 if state is None else state.next_us
        if len(self._next_us) > _MOST_NAMES:
            self._next_us.popitem(last=False)


class Turn:
    """One caller's way to its slot. The same object serves all repeats of the call.

    `max_wait` counts from `since`, a reading of the monotonic clock, or from each call's beginning.
    It `is_unknowable` if a lost reply was the answer, which no repeat can tell any more.
    """

    def __init__(
        self, request: PaceRequest, known: KnownPaces, *, since: float | None = None
    ) -> None:
        self._request = request
        self._known = known
        self._since = since
        self._first_asked_us = math.inf
        self._in_doubt = False
        self._slot: Slot | None = None
        self.is_unknowable = False

    def take(self, context: LockContext) -> TooLate | None:
        """Reserves a slot and waits until it begins; None once it has.

        After an error a repeat finds the slot, or waits on for it.
        """
        while True:
            if self._slot is None:
                found = self.reserve(context)
                if isinstance(found, TooLate):
                    return found
                # Others reserve while it waits, and then the item does not tell of it any more.
                self._slot = found
            if self._wait(context, self._slot):
                return None
            self._slot = None

    def reserve(self, context: LockContext) -> Slot | TooLate:
        """Reserves a slot that is not over yet, or finds the one that a lost reply told of."""
        request, name = self._request, self._request.name
        now, state = self._time(context)
        self._first_asked_us = min(self._first_asked_us, now.early_us)
        began = context.retry_budget.clock.monotonic()
        for attempt in itertools.count():
            is_mine = state is not None and state.reservation_id == request.reservation_id
            if state is not None and is_mine:
                self._in_doubt = False
                slot = request.slot(state)
                if not slot.is_over(now):
                    return slot
            if state is not None and request.wait_us(state.next_us, now) > self._left_us(context):
                return self._refused(state, now)
            if attempt:
                self._pause(context, began=began, attempt=attempt)
            next_us = self._known.next_us(name) if state is None else state.next_us
            state = self._write(
                context,
                replace(request, max_wait_us=self._left_us(context)),
                now,
                is_busy=next_us > now.early_us,
                over=state if is_mine else None,
            )
            self._known.note(name, state)
            now, read = self._time(context)
            state = read or state
        raise AssertionError  # pragma: no cover - count() has no end

    def _write(
        self,
        context: LockContext,
        request: PaceRequest,
        now: AwsTime,
        *,
        is_busy: bool,
        over: PaceState | None,
    ) -> PaceState | None:
        """Sends one form of the write; returns the state after it."""
        form = reserve_next if is_busy else reserve_idle
        was_in_doubt, self._in_doubt = self._in_doubt, True
        answer = context.table.update(form(request, now, over=over))
        self._in_doubt = isinstance(answer, ConditionFailed) and (was_in_doubt or answer.repeated)
        if isinstance(answer, Written) and not is_busy:
            return idle_state(request, now)
        return read_pace(request.name, answer.item)

    def _refused(self, state: PaceState, now: AwsTime) -> TooLate:
        """A refusal, unless an earlier sending of this call may have reserved a slot.

        If the last reservation was made of a slot before the one that ours would have left behind,
        ours was never written; and no copy of it can be any more.
        """
        is_certain = state.slot_us < self._first_asked_us + self._request.interval_us
        if self._in_doubt and not is_certain:
            # Their reservations stay, and the next slot is too late for ever: it only moves on.
            self.is_unknowable = True
            raise LockStoreUnavailable(
                f"pace {self._request.name!r}: a reply was lost, and others have reserved since; "
                "whether a slot was reserved is unknown, and the next one is too late"
            )
        return TooLate(wait_us=self._request.wait_us(state.next_us, now))

    def _left_us(self, context: LockContext) -> int:
        """What is left of the longest wait."""
        if self._since is None:
            return self._request.max_wait_us
        waited = context.retry_budget.clock.monotonic() - self._since
        return max(0, self._request.max_wait_us - round(waited * MICROSECONDS))

    def _wait(self, context: LockContext, slot: Slot) -> bool:
        """Waits until the slot begins; whether it is not over then."""
        while (left_us := slot.wait_us(now := self.now(context))) > 0:
            asleep_us = min(max(left_us, _SHORTEST_SLEEP_US), _LONGEST_SLEEP_US)
            context.retry_budget.clock.wait(asleep_us / MICROSECONDS)
            if asleep_us == _LONGEST_SLEEP_US:
                self._read(context)
        return not slot.is_over(now)

    def now(self, context: LockContext) -> AwsTime:
        """AWS's time, to tell how long a slot is away."""
        return self._time(context)[0]

    def _time(self, context: LockContext) -> tuple[AwsTime, PaceState | None]:
        """AWS's time; and the state, if it had to be read for that, as in a new process."""
        edges, state = context.aws_clock.edges_ms(), None
        if edges is None:
            state = self._read(context)
            edges = context.aws_clock.edges_ms()
        if edges is None:  # AWS's address, and an answer without a Date.
            raise context.table.no_date()
        return AwsTime(early_us=edges[0] * 1000, late_us=edges[1] * 1000), state

    def _read(self, context: LockContext) -> PaceState | None:
        name = self._request.name
        return read_pace(name, context.table.read(pace_key(name)))

    def _pause(self, context: LockContext, *, began: float, attempt: int) -> None:
        """Before a further attempt. There is a second one even if the first took all the time."""
        if attempt > 1 and context.retry_budget.is_spent(since=began):
            raise LockStoreUnavailable(
                f"pace {self._request.name!r}: each slot was over before its answer came; one may "
                "be reserved, repeat the call"
            )
        if attempt > 1:
            context.retry_budget.pause(attempt)
