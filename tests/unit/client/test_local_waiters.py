"""What the waiters of one client tell each other: which news count, and which come too late."""

from __future__ import annotations

import gc
import math

import pytest

from fairlock.client.local_waiters import LocalQueue, LocalWaiter, LocalWaiters
from fairlock.protocol.model import AcquireRequest, Holder, LockState, SeenLock, Waiter
from fairlock.protocol.outcomes import Grant
from tests.support import START_MS, FakeAlarm, FakeClock

NAME = "nightly-report"
ME = "owner-id-of-anna"
OTHER = "owner-id-of-ben-"


def holder(owner_id: str, token: int) -> Holder:
    return Holder(
        owner_id=owner_id,
        owner_name="",
        acquired_at_ms=START_MS,
        expires_at_ms=START_MS + 60_000,
        lease_ms=60_000,
        limit=1,
        revision=1,
        fencing_token=token,
    )


def held_by(owner_id: str, token: int, *, waiters: tuple[Waiter, ...] = ()) -> SeenLock:
    state = LockState(fencing_token=token, held=1, holders=(holder(owner_id, token),))
    seen_at = 5 if waiters else -math.inf
    return SeenLock(state=state, waiters=waiters, queue_seen_at=seen_at, date_ms=START_MS)


def waiter_of(owner_id: str) -> Waiter:
    request = AcquireRequest(lock_name=NAME, owner_id=owner_id)
    return Waiter(
        request=request, entered_at_ms=START_MS, asked_at_ms=START_MS, expires_at_ms=START_MS
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ms=0)


@pytest.fixture
def waiters(clock: FakeClock) -> LocalWaiters:
    return LocalWaiters(clock)


@pytest.fixture
def me(waiters: LocalWaiters) -> LocalWaiter:
    return waiters.add(NAME, ME)


def is_rung(waiter: LocalWaiter) -> bool:
    assert isinstance(waiter.alarm, FakeAlarm)
    return waiter.alarm.rung


def test_the_waiter_that_holds_now_is_woken_with_its_grant_and_no_other(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    other = waiters.add(NAME, OTHER)
    waiters.note(NAME, held_by(OTHER, 7), 3.0)
    assert (is_rung(me), is_rung(other)) == (False, True)
    told = other.take_grant()
    assert told is not None
    assert told.fencing_token == 7
    assert told.repeated
    assert (me.take_grant(), other.take_grant()) == (None, None)


def test_a_grant_counts_from_the_request_that_showed_it(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    waiters.note(NAME, held_by(OTHER, 6), 2.5)
    waiters.note(NAME, held_by(ME, 7), 9.0)
    told = me.take_grant()
    assert told is not None
    assert told.since == 9.0


def test_a_grant_that_was_seen_to_be_lost_is_no_news(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    """The thread that handed over stalled, and tells of it when all is over."""
    waiters.note(NAME, held_by(OTHER, 8), 9.0)
    waiters.note(NAME, held_by(ME, 7), 3.0)
    assert (me.take_grant(), is_rung(me)) == (None, False)


def test_a_grant_that_a_heartbeat_found_to_be_over_is_no_news(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    waiters.note(NAME, held_by(ME, 7), 3.0)
    told = me.take_grant()
    assert told is not None
    me.note_loss(told)
    waiters.note(NAME, held_by(ME, 7), 3.0)
    assert me.take_grant() is None
    waiters.note(NAME, held_by(ME, 9), 50.0)
    again = me.take_grant()
    assert again is not None
    assert again.since == 50.0


def test_without_the_tokens_a_lost_grant_would_be_believed(
    waiters: LocalWaiters, me: LocalWaiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters.note(NAME, held_by(OTHER, 8), 9.0)
    monkeypatch.setattr(me, "_absent_token", -1)
    waiters.note(NAME, held_by(ME, 7), 3.0)
    told = me.take_grant()
    assert told is not None
    assert isinstance(told, Grant)


def test_a_state_that_comes_late_does_not_replace_a_newer_one(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    queue = me.queue
    waiters.note(NAME, held_by(OTHER, 8), 2.0)
    waiters.note(NAME, held_by("somebody", 7), 3.0)
    waiters.note(NAME, SeenLock(state=LockState(fencing_token=8)), 1.0)
    assert (queue.seen_at, queue.grants_since(0)) == (2.0, 8)
    assert queue.seen_by_holder(2.0).state.holders[0].owner_id == OTHER


def test_the_time_of_a_grant_is_the_time_for_which_the_last_holder_held(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    queue = me.queue
    waiters.note(NAME, held_by(OTHER, 10), 1.0)
    assert queue.seconds_per_grant == 0
    waiters.note(NAME, held_by(OTHER, 10), 2.0)
    assert (queue.changed_at, queue.seen_at) == (1.0, 2.0)
    waiters.note(NAME, held_by("somebody", 11), 3.0)
    assert queue.seconds_per_grant == 2.0


def test_of_several_grants_the_first_holder_may_have_held_for_far_longer(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    waiters.note(NAME, held_by(OTHER, 10), 1.0)
    waiters.note(NAME, held_by(OTHER, 10), 61.0)
    waiters.note(NAME, held_by("somebody", 14), 62.5)
    assert me.queue.seconds_per_grant == 0.5


def test_a_longer_time_is_believed_slowly_and_a_shorter_one_at_once(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    """A waiter that polled too late would make all others poll later still."""
    for token, sent in ((1, 0.0), (2, 1.0), (3, 11.0)):
        waiters.note(NAME, held_by(OTHER, token), sent)
    assert me.queue.seconds_per_grant == 1.25
    waiters.note(NAME, held_by(OTHER, 4), 11.5)
    assert me.queue.seconds_per_grant == 0.5


def test_the_oldest_waiters_are_known_for_a_second_and_until_the_next_grant(
    waiters: LocalWaiters, me: LocalWaiter
) -> None:
    queue, next_one = me.queue, waiter_of("somebody")
    waiters.note(NAME, held_by(OTHER, 8, waiters=(next_one,)), 5.0)
    waiters.note(NAME, held_by(OTHER, 8), 5.5)
    assert queue.seen_by_holder(6.0).waiters == (next_one,)
    assert queue.seen_by_holder(6.1).waiters == ()
    waiters.note(NAME, held_by("somebody", 9), 5.6)
    assert queue.seen_by_holder(5.7).waiters == ()


def test_a_lock_was_seen_just_now_for_a_second(waiters: LocalWaiters, me: LocalWaiter) -> None:
    queue: LocalQueue = me.queue
    assert queue.seen_just_now(0.0) is None
    waiters.note(NAME, held_by(OTHER, 8), 5.0)
    assert queue.seen_just_now(6.0) is not None
    assert queue.seen_just_now(6.1) is None


def test_what_is_known_of_a_lock_is_forgotten_with_its_last_waiter_and_holder(
    waiters: LocalWaiters,
) -> None:
    waiter = waiters.add(NAME, ME)
    waiters.note(NAME, held_by(OTHER, 8), 5.0)
    waiter.queue.remove(waiter)
    del waiter
    gc.collect()
    assert waiters.add(NAME, ME).queue.grants_since(0) == 0
