"""When a waiter polls, asks again, and what it knows without."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fairlock.backoff import poll_seconds
from fairlock.client.local_waiters import FreePermit, LocalQueue, LocalWaiters, QueuePosition
from fairlock.protocol.model import Holder, LockState, SeenLock
from tests.support import LOCK, FakeClock, acquire, moved_clock
from tests.unit.client.test_waiting_together import NAME, waiter_of

# When a waiter polls: by the waiters in front, the time of a grant, and the time without one.

ME = "owner-id-of-anna"


def pause(
    *,
    unchanged: float = 0,
    ahead: int = 0,
    served: int = 9,
    waited: float = 100,
    seconds_per_grant: float = 0.1,
) -> float:
    """The longest pause, without jitter."""
    return poll_seconds(
        unchanged=unchanged,
        ahead=ahead,
        served=served,
        waited=waited,
        seconds_per_grant=seconds_per_grant,
        longest=5,
        until_free=math.inf,
        random=lambda: 1,
    )


def test_the_next_waiter_polls_often_at_first_and_then_after_a_fifth_of_the_time() -> None:
    assert pause() == 0.025
    assert pause(unchanged=1) == 0.2
    assert pause(unchanged=3600) == 5


def test_a_waiter_behind_others_waits_for_half_of_their_time() -> None:
    assert pause(ahead=10) == 0.5
    assert pause(ahead=40) == 2
    assert pause(ahead=1000) == 5


def test_few_grants_are_weak_evidence() -> None:
    """The first holder may have held for far longer than those behind it will."""
    assert pause(ahead=40, served=3, waited=1) == 0.5
    assert pause(ahead=40, served=4, waited=1) == 2


def test_without_a_grant_the_time_without_one_counts() -> None:
    assert pause(ahead=10, unchanged=0.2, seconds_per_grant=0) == 1


@pytest.fixture
def queue() -> LocalQueue:
    return LocalWaiters(FakeClock(now_ms=0)).add(NAME, ME).queue


def seen(token: int, *waiters: str) -> SeenLock:
    return SeenLock(state=LockState(fencing_token=token), waiters=tuple(map(waiter_of, waiters)))


def test_each_grant_brings_a_waiter_nearer(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(6, seen(10))
    assert position.ahead == 5
    queue.note(seen(13), 2)
    assert position.ahead == 2
    queue.note(seen(20), 3)
    assert position.ahead == 0


def test_the_head_of_the_queue_corrects_the_position(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(6, seen(10))
    assert position.correct(ME, seen(10, "somebody", ME)) is False
    assert position.ahead == 1


def test_a_waiter_that_is_not_where_it_thought_counts_again(queue: LocalQueue) -> None:
    position = QueuePosition(queue, began=0)
    queue.note(seen(10), 1)
    position.note(2, seen(10))
    assert position.correct(ME, seen(10, "somebody", "another")) is True
    position.note(9, seen(10))
    assert position.correct(ME, seen(10, "somebody", "another")) is False


def test_outside_of_a_full_queue_a_waiter_polls_as_one_behind_all_others(queue: LocalQueue) -> None:
    """Thousands may be outside of a hot lock: each as the next in line would overload it."""
    position = QueuePosition(queue, began=0)
    queue.note(seen(10, "owner-id-of-ben"), 100)

    def seconds() -> float:
        return position.seconds_to_poll(100, longest=5, until_free=math.inf, random=lambda: 1)

    assert seconds() < 0.1, "the next in line"
    position.note_outside()
    assert not position.correct(ME, seen(10, "owner-id-of-ben"))
    assert seconds() == 5
    position.note(2, seen(10))
    assert position.ahead == 1, "it has a place now"


# When a waiter asks by itself, because no one hands over what is free.

FRONT_END_SECONDS = 0.5


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def free_permit(clock: FakeClock, limit: int = 1) -> FreePermit:
    request = acquire("anna", lock_name=LOCK, limit=limit)
    return FreePermit(clock, moved_clock(clock), request)


def held(
    clock: FakeClock,
    *seconds: float,
    contended: bool = True,
    fencing_token: int = 7,
    holders_limit: int = 100,
) -> SeenLock:
    """A lock whose holders' leases are over in so many seconds."""
    holders = tuple(
        Holder(
            owner_id=f"owner-{number}",
            owner_name="",
            acquired_at_ms=clock.wall_ms(),
            expires_at_ms=clock.wall_ms() + round((left - FRONT_END_SECONDS) * 1000),
            lease_ms=60_000,
            limit=holders_limit,
            revision=1,
            fencing_token=number,
        )
        for number, left in enumerate(seconds)
    )
    state = LockState(
        held=len(holders), holders=holders, contended=contended, fencing_token=fencing_token
    )
    return SeenLock(state=state, date_ms=clock.wall_ms())


def test_a_held_lock_with_a_queue_is_not_requested(clock: FakeClock) -> None:
    assert not free_permit(clock).is_worth_a_request(held(clock, 60))


def test_a_lock_without_a_queue_is_requested_because_this_waiter_was_dropped(
    clock: FakeClock,
) -> None:
    assert free_permit(clock).is_worth_a_request(held(clock, 60, contended=False))


def test_a_free_permit_is_requested(clock: FakeClock) -> None:
    assert free_permit(clock).is_worth_a_request(held(clock))
    assert free_permit(clock, limit=2).is_worth_a_request(held(clock, 60))
    assert not free_permit(clock, limit=2).is_worth_a_request(held(clock, 60, 60))


def test_a_lease_that_is_over_is_requested_from_the_date_that_shows_it(clock: FakeClock) -> None:
    permit = free_permit(clock)
    lock = held(clock, 60)
    clock.advance(59.999)
    assert not permit.is_worth_a_request(replace(lock, date_ms=clock.wall_ms()))
    clock.advance(0.001)
    assert permit.is_worth_a_request(replace(lock, date_ms=clock.wall_ms()))


@pytest.mark.parametrize(("limit", "seconds"), [(3, 10), (2, 20), (1, 60), (4, math.inf)], ids=str)
def test_as_many_leases_have_to_end_as_leave_room_for_the_limit(
    clock: FakeClock, limit: int, seconds: float
) -> None:
    permit = free_permit(clock, limit=limit)
    permit.is_worth_a_request(held(clock, 20, 60, 10))
    assert permit.expected_at - clock.monotonic() == pytest.approx(seconds)


def test_a_permit_that_only_the_waiters_own_limit_would_leave_free_is_not_requested(
    clock: FakeClock,
) -> None:
    permit = free_permit(clock, limit=5)
    assert not permit.is_worth_a_request(held(clock, 60, holders_limit=1))
    assert permit.expected_at - clock.monotonic() == pytest.approx(60)


def test_a_lock_that_has_not_moved_is_requested_again_after_half_a_minute(
    clock: FakeClock,
) -> None:
    permit = free_permit(clock)
    assert permit.is_worth_a_request(held(clock))
    clock.advance(29)
    assert not permit.is_worth_a_request(held(clock))
    assert permit.is_worth_a_request(held(clock, fencing_token=8)), "the lock has moved"
    assert not permit.is_worth_a_request(held(clock, fencing_token=8))
    clock.advance(30)
    assert permit.is_worth_a_request(held(clock, fencing_token=8))


def test_a_lease_that_was_over_by_one_date_is_requested_again_once_all_front_ends_agree(
    clock: FakeClock,
) -> None:
    """The request is judged by another front end than the poll, whose clock may be behind."""
    permit, lock = free_permit(clock), held(clock, 60)

    def asks() -> bool:
        return permit.is_worth_a_request(replace(lock, date_ms=clock.wall_ms()))

    clock.advance(60)
    assert asks()
    clock.advance(0.1)
    assert not asks()
    assert permit.expected_at - clock.monotonic() == pytest.approx(0.9)
    clock.advance(0.9)
    assert asks(), "not half a minute later"
    clock.advance(29)
    assert not asks(), "no one's clock explains that any more"
    clock.advance(1)
    assert asks()
