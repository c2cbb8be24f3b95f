"""When a waiter asks by itself, because no one hands over what is free."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fairlock.client.local_waiters import FreePermit
from fairlock.protocol.model import Holder, LockState, SeenLock
from tests.support import LOCK, FakeClock, acquire, moved_clock

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
