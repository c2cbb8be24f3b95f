"""What the waiters of one client know, and tell each other: when one polls, and when it asks."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fairlock.backoff import poll_seconds
from fairlock.client.arguments import Timing
from fairlock.client.local_lease import LeaseState, LocalLease
from fairlock.client.local_waiters import FreePermit, LocalWaiter, LocalWaiters, QueuePosition
from fairlock.clock import FRONT_END_MS
from fairlock.protocol.model import AcquireRequest, Grant, Holder, LockState, SeenLock, Waiter
from fairlock.testing import FakeLockClient
from fairlock.testing.manual_clock import START_MS, ManualAlarm, ManualClock
from tests.support import LOCK, acquire, moved_clock

# What the waiters of one client tell each other: which news count, and which come too late.

NAME = "nightly-report"
ME = "owner-id-of-anna"
OTHER = "owner-id-of-ben-"


def holder(owner_id: str, token: int, **fields: Any) -> Holder:  # noqa: ANN401 - of a holder
    """For a minute, and from now on, unless it is said otherwise."""
    given = {"acquired_at_ms": START_MS, "expires_at_ms": START_MS + 60_000, "limit": 1, **fields}
    return Holder(
        owner_id=owner_id, owner_name="", lease_ms=60_000, revision=1, fencing_token=token, **given
    )


def held_by(owner_id: str, token: int, *waiters: str) -> SeenLock:
    """By one, while others may wait."""
    state = LockState(fencing_token=token, held=1, holders=(holder(owner_id, token),))
    times = dict.fromkeys(("entered_at_ms", "asked_at_ms", "expires_at_ms"), START_MS)
    queue = tuple(
        Waiter(request=AcquireRequest(lock_name=NAME, owner_id=waiter), **times)
        for waiter in waiters
    )
    seen_at = 5 if waiters else -math.inf
    return SeenLock(state=state, waiters=queue, queue_seen_at=seen_at, date_ms=START_MS)


@pytest.fixture
def waiters(clock: ManualClock) -> LocalWaiters:
    return LocalWaiters(clock)


@pytest.fixture
def me(waiters: LocalWaiters) -> LocalWaiter:
    return waiters.add(NAME, ME)


def is_rung(waiter: LocalWaiter) -> bool:
    assert isinstance(waiter.alarm, ManualAlarm)
    return waiter.alarm._rung  # noqa: SLF001 - waiting would end it


def test_the_waiter_that_holds_now_is_woken(waiters: LocalWaiters, me: LocalWaiter) -> None:
    """Its grant counts from the request that showed it."""
    other = waiters.add(NAME, OTHER)
    waiters.note(NAME, held_by("one-more", 6), 2.5)
    waiters.note(NAME, held_by(OTHER, 7), 3.0)
    assert (is_rung(me), is_rung(other)) == (False, True)
    told = other.take_grant()
    assert told is not None
    assert (told.fencing_token, told.repeated, told.since) == (7, True, 3.0)
    assert (me.take_grant(), other.take_grant()) == (None, None)


def test_a_grant_seen_to_be_lost_is_no_news(waiters: LocalWaiters, me: LocalWaiter) -> None:
    """The thread that handed over stalled, and tells of it when all is over."""
    waiters.note(NAME, held_by(OTHER, 8), 9.0)
    waiters.note(NAME, held_by(ME, 7), 3.0)
    assert (me.take_grant(), is_rung(me)) == (None, False)


def test_a_late_state_replaces_no_newer_one(waiters: LocalWaiters, me: LocalWaiter) -> None:
    queue = me.queue
    waiters.note(NAME, held_by(OTHER, 8), 2.0)
    waiters.note(NAME, held_by("one-more", 7), 3.0)
    waiters.note(NAME, SeenLock(state=LockState(fencing_token=8)), 1.0)
    assert (queue.seen_at, queue.grants_since(0)) == (2.0, 8)
    assert queue.seen_by_holder(2.0).state.holders[0].owner_id == OTHER


@pytest.mark.parametrize("is_told", [True, False], ids=["a loss", "the end of a lease"])
def test_a_lock_that_this_client_has_lost_is_not_its_to_hand_over(
    waiters: LocalWaiters, me: LocalWaiter, clock: ManualClock, *, is_told: bool
) -> None:
    waiters.note(NAME, held_by(OTHER, 7), 3.0)
    lease = LocalLease(
        clock,
        replace(Grant.of(NAME, holder(OTHER, 7)), since=0.0, own_ms=60_000),
        timing=Timing(heartbeat_every=None, safe_period=None),
        listener=lambda: None,
    )
    waiters.add_holder(lease)
    assert me.queue.is_held_by_this_client()
    lease.lose("taken") if is_told else clock.advance(60)
    assert not me.queue.is_held_by_this_client()


HELD_FOR: dict[str, list[tuple[int, float, float]]] = {
    # Of several grants the first holder may have held for far longer.
    "a grant": [(10, 1.0, 0), (10, 2.0, 0), (11, 3.0, 2.0), (11, 4.0, 2.0), (15, 5.5, 0.5)],
    # A waiter that polled too late would make all others poll later still.
    "a longer time, slowly": [(1, 0.0, 0), (2, 1.0, 1.0), (3, 11.0, 1.25), (4, 11.5, 0.5)],
}


@pytest.mark.parametrize("what", HELD_FOR)
def test_the_time_of_a_grant_is_the_time_for_which_the_last_holder_held(
    waiters: LocalWaiters, me: LocalWaiter, what: str
) -> None:
    for token, sent, seconds in HELD_FOR[what]:
        waiters.note(NAME, held_by(OTHER, token), sent)
        assert me.queue.seconds_per_grant == seconds
    assert me.queue.changed_at == me.queue.seen_at == sent


def test_the_oldest_waiters_are_known_for_a_second(waiters: LocalWaiters, me: LocalWaiter) -> None:
    queue = me.queue
    waiters.note(NAME, held_by(OTHER, 8, "one-more"), 5.0)
    waiters.note(NAME, held_by(OTHER, 8), 5.5)
    assert [one.request.owner_id for one in queue.seen_by_holder(6.0).waiters] == ["one-more"]
    assert queue.seen_by_holder(6.1).waiters == ()
    waiters.note(NAME, held_by("one-more", 9), 5.6)
    assert queue.seen_by_holder(5.7).waiters == ()
    # The state itself is as fresh.
    assert [queue.seen_just_now(now) is None for now in (6.6, 6.7)] == [False, True]


def test_a_lock_is_forgotten_with_its_last_waiter_and_holder(waiters: LocalWaiters) -> None:
    waiter = waiters.add(NAME, ME)
    waiters.note(NAME, held_by(OTHER, 8), 5.0)
    waiter.queue.remove(waiter)
    del waiter
    gc.collect()
    assert waiters.add(NAME, ME).queue.grants_since(0) == 0


# When a waiter polls: by the waiters in front, the time of a grant, and the time without one.


PAUSES: dict[str, list[tuple[dict[str, float], float]]] = {
    "the next one often at first, and then after a fifth of the time": [
        ({}, 0.025),
        ({"unchanged": 1}, 0.2),
        ({"unchanged": 3600}, 5),
    ],
    "one behind others after half of their time": [
        ({"ahead": 10}, 0.5),
        ({"ahead": 40}, 2),
        ({"ahead": 1000}, 5),
    ],
    # The first holder may have held for far longer than those behind it will.
    "few grants are weak evidence": [
        ({"ahead": 40, "served": 3, "waited": 1}, 0.5),
        ({"ahead": 40, "served": 4, "waited": 1}, 2),
    ],
    "without a grant the time without one counts": [
        ({"ahead": 10, "unchanged": 0.2, "seconds_per_grant": 0}, 1)
    ],
}


@pytest.mark.parametrize("sentence", PAUSES)
def test_a_waiter_polls(sentence: str) -> None:
    usual: dict[str, Any] = {"unchanged": 0, "ahead": 0, "served": 9, "waited": 100}
    usual |= {"seconds_per_grant": 0.1, "longest": 5, "until_free": math.inf}
    for given, seconds in PAUSES[sentence]:
        assert poll_seconds(**{**usual, **given}, random=lambda: 1) == seconds, given


def test_each_grant_brings_a_waiter_nearer_and_the_queue_corrects_it(me: LocalWaiter) -> None:
    queue = me.queue
    position = QueuePosition(queue, began=0)
    queue.note(held_by(OTHER, 10), 1)
    position.note(6, held_by(OTHER, 10))
    assert position.ahead == 5
    queue.note(held_by(OTHER, 13), 2)
    assert position.ahead == 2
    assert position.correct(ME, held_by(OTHER, 13, "one-more", ME)) is False
    assert position.ahead == 1
    queue.note(held_by(OTHER, 20), 3)
    assert position.ahead == 0


def test_a_waiter_that_is_not_where_it_thought_counts_again(me: LocalWaiter) -> None:
    queue = me.queue
    position = QueuePosition(queue, began=0)
    queue.note(held_by(OTHER, 10), 1)
    position.note(2, held_by(OTHER, 10))
    assert position.correct(ME, held_by(OTHER, 10, "one-more", "another")) is True
    position.note(9, held_by(OTHER, 10))
    assert position.correct(ME, held_by(OTHER, 10, "one-more", "another")) is False


def test_outside_of_a_full_queue_a_waiter_polls_as_one_behind_all_others(me: LocalWaiter) -> None:
    """Thousands may be outside of a hot lock: each as the next in line would overload it."""
    queue = me.queue
    position = QueuePosition(queue, began=0)
    queue.note(held_by(OTHER, 10, "owner-id-of-ben"), 100)

    def seconds() -> float:
        return position.seconds_to_poll(100, longest=5, until_free=math.inf, random=lambda: 1)

    assert seconds() < 0.1, "the next in line"
    position.note_outside()
    assert not position.correct(ME, held_by(OTHER, 10, "owner-id-of-ben"))
    assert seconds() == 5
    position.note(2, held_by(OTHER, 10))
    assert position.ahead == 1, "it has a place now"


# When a waiter asks by itself, because no one hands over what is free.


@dataclass(frozen=True)
class Look:
    """At the lock, so many seconds after the look before.

    Attributes:
        ends: when the leases of its holders are over, in seconds from the beginning.
        asks: whether it is worth a request.
        expected: in how many seconds a lease has to end first; None if that does not matter.
    """

    after: float
    ends: tuple[float, ...]
    asks: bool
    expected: float | None = None
    fencing_token: int = 7
    contended: bool = True
    limit: int = 100

    def seen(self, date_ms: int) -> SeenLock:
        ends_ms = [START_MS + round(end * 1000) - FRONT_END_MS for end in self.ends]
        holders = tuple(
            holder(f"owner-{number}", number, expires_at_ms=end_ms, limit=self.limit)
            for number, end_ms in enumerate(ends_ms)
        )
        state = LockState(
            held=len(holders),
            holders=holders,
            contended=self.contended,
            fencing_token=self.fencing_token,
        )
        return SeenLock(state=state, date_ms=date_ms)


ONE, HELD_TWICE, THREE = (60,), (60, 60), (20, 60, 10)
YES, NO = True, False
LOOKS: dict[str, tuple[int, list[Look]]] = {
    "for a free permit": (1, [Look(0, (), YES)]),
    "for a free permit beside a holder": (2, [Look(0, ONE, YES)]),
    "not for one that is held": (1, [Look(0, ONE, NO)]),
    "not for two that are held": (2, [Look(0, HELD_TWICE, NO)]),
    "for a lock without a queue, which has dropped it": (1, [Look(0, ONE, YES, contended=False)]),
    "not beyond the limit of a holder": (5, [Look(0, ONE, NO, 60, limit=1)]),
    "for a lease from the date that shows its end": (
        1,
        [Look(59.999, ONE, NO), Look(0.001, ONE, YES)],
    ),
    "after one of three leases": (3, [Look(0, THREE, NO, 10)]),
    "after two of three leases": (2, [Look(0, THREE, NO, 20)]),
    "after all leases": (1, [Look(0, THREE, NO, 60)]),
    "for the fourth permit": (4, [Look(0, THREE, YES, math.inf)]),
    "again when the lock has moved, or after half a minute": (
        1,
        [
            *(Look(0, (), YES), Look(29, (), NO, math.inf)),
            *(Look(0, (), YES, fencing_token=8), Look(0, (), NO, fencing_token=8)),
            Look(30, (), YES, fencing_token=8),
        ],
    ),
    # A request is judged by another front end than the poll, whose clock may be behind.
    "again after the first yes by a date, when all front ends agree": (
        1,
        [
            *(Look(60, ONE, YES), Look(0.1, ONE, NO, 0.9), Look(0.9, ONE, YES)),
            *(Look(29, ONE, NO), Look(1, ONE, YES)),
        ],
    ),
}


@pytest.mark.parametrize("sentence", LOOKS)
def test_a_waiter_asks(sentence: str) -> None:
    limit, looks = LOOKS[sentence]
    clock = ManualClock()
    request = acquire("anna", lock_name=LOCK, limit=limit)
    permit = FreePermit(clock, moved_clock(clock), request)
    for look in looks:
        clock.advance(look.after)
        assert permit.is_worth_a_request(look.seen(clock.wall_ms())) is look.asks, look
        if look.expected is not None:
            assert permit.expected_at - clock.monotonic() == pytest.approx(look.expected)


def test_a_loss_found_while_the_lock_is_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter of the same client asks the new holder's lease, which a frozen process outlived."""
    told: list[str] = []
    client = FakeLockClient(lease=5)
    add_holder = LocalWaiters.add_holder

    def found_over(waiters: LocalWaiters, lease: LocalLease) -> object:
        added = add_holder(waiters, lease)
        client.clock.stall(10)
        assert lease.state() is LeaseState.LOST
        return added

    monkeypatch.setattr(LocalWaiters, "add_holder", found_over)
    lock = client.acquire("a", on_lost=lambda _lock, reason: told.append(reason))
    assert lock.lost.is_set()
    assert told == ["its lease is over"]
