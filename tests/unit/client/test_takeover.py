"""Taking over from a holder that vanished, and never from one that lives, whatever the clocks say.

One process runs behind the clock that all share; another one's wall clock is two hours off.
"""

from __future__ import annotations

import pytest

from leasehold import Lock, LockClient, LockLost, LockWaitTimeout
from leasehold.client.logging import log_event
from leasehold.protocol.model import Holder
from leasehold.store import lease_expiry
from leasehold.store.events import Evicted
from tests.support import acquire, heartbeat, store_over
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table

TWO_HOURS = 7200.0


def beat_every(clock: EventfulClock, lock: Lock, seconds: float, *, times: int) -> None:
    for number in range(1, times + 1):
        clock.at(seconds * number, lock.heartbeat)


def robs_a_renewing_holder(
    make_client: MakeClient, clock: EventfulClock, contender: LockClient, *, lease: float = 60
) -> bool:
    """Whether the contender gets a lock whose holder renews it all the time."""
    lock = make_client("anna", lease=60).acquire("a")
    beat_every(clock, lock, 20, times=30)
    try:
        contender.acquire("a", max_wait=500, lease=lease)
    except LockWaitTimeout:
        lock.check()
        return False
    with pytest.raises(LockLost):
        lock.heartbeat()
    return True


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
def test_a_contender_whose_clock_is_two_hours_wrong_robs_nobody(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    contender = make_client("ben", clock=SkewedClock(clock, skew))
    assert not robs_a_renewing_holder(make_client, clock, contender)


def test_by_the_stored_end_a_clock_two_hours_ahead_would_rob(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    contender = make_client("ben", clock=SkewedClock(clock, TWO_HOURS), takeover="stored_expiry")
    assert robs_a_renewing_holder(make_client, clock, contender)


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
def test_a_holder_whose_clock_is_two_hours_wrong_is_robbed_by_nobody(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    lock = make_client("anna", lease=60, clock=SkewedClock(clock, skew)).acquire("a")
    beat_every(clock, lock, 20, times=30)
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=500)
    lock.check()


def test_a_dead_holder_whose_clock_was_years_ahead_blocks_by_the_stored_end_until_it_is_freed(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    """The stored end has no bound, as the documents say; who watches needs none: the control."""
    three_years = 3 * 365 * 86_400
    ahead = make_client("anna", lease=60, clock=SkewedClock(clock, three_years))
    ahead.acquire("a")
    ahead.acquire("b")
    clock.advance(86_400)
    one_shot = make_client("ben", takeover="stored_expiry")
    assert one_shot.try_acquire("a") is None
    assert make_client("carl").acquire("b", max_wait=120)
    found = one_shot.describe("a")
    assert found is not None
    one_shot.force_release("a", holder=found.holders[0], reason="died with a wrong clock")
    assert one_shot.try_acquire("a") is not None


def test_by_the_stored_end_a_holder_two_hours_behind_would_be_robbed(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=60, clock=SkewedClock(clock, -TWO_HOURS)).acquire("a")
    beat_every(clock, lock, 20, times=30)
    assert make_client("ben", takeover="stored_expiry").try_acquire("a") is not None


def test_a_contenders_own_short_lease_is_no_measure_of_the_holders(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    assert not robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


def test_a_measure_by_the_contenders_own_lease_would_rob(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_expiry, "_watch_seconds", lambda _holder: 1.0)
    assert robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


@pytest.mark.parametrize("skew", [-TWO_HOURS, 0.0, TWO_HOURS])
def test_a_dead_holder_is_replaced_within_its_lease_and_two_seconds(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    make_client("anna", lease=60).acquire("a")
    began = clock.now_ms
    make_client("ben", clock=SkewedClock(clock, skew)).acquire("a", max_wait=3600).check()
    assert 60_000 < clock.now_ms - began < 62_000


def test_a_dead_holder_that_had_renewed_is_replaced_within_its_lease_and_two_seconds(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=60).acquire("a")
    beat_every(clock, lock, 20, times=2)
    began = clock.now_ms
    make_client("ben").acquire("a", max_wait=3600).check()
    # The heartbeat is seen at the next look at the lock: 5 s later at most, or 10 s if the look in
    # between is at the waiter's own place.
    assert 100_000 < clock.now_ms - began < 112_000


def test_a_waiter_that_judges_nobody_would_wait_for_ever(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(_self: object, _lock_name: str, _holder: Holder) -> float:
        return 1.0

    monkeypatch.setattr(lease_expiry.WatchedExpiry, "seconds_left", left)
    make_client("anna", lease=60).acquire("a")
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=3600)


def test_a_one_shot_process_takes_over_after_the_stored_end_and_the_tolerance(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    make_client("anna", lease=60).acquire("a")
    ben = make_client("ben", takeover="stored_expiry")
    clock.advance(62)
    assert ben.try_acquire("a") is None
    clock.advance(0.001)
    assert ben.try_acquire("a") is not None


def test_several_tries_of_one_client_are_a_watch(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    make_client("anna", lease=60).acquire("a")
    ben = make_client("ben")
    clock.advance(3600)
    assert ben.try_acquire("a") is None  # Never seen before: it may have renewed just now.
    clock.advance(60)
    assert ben.try_acquire("a") is None
    clock.advance(0.3)
    assert ben.try_acquire("a") is not None


@pytest.mark.parametrize("renews", [True, False])
def test_a_renewal_between_the_last_look_and_the_takeover_wins(
    make_client: MakeClient, clock: EventfulClock, table: Table, *, renews: bool
) -> None:
    direct = store_over(table, clock)
    direct.acquire(acquire("anna", lock_name="a"))
    ben = make_client("ben")
    assert ben.try_acquire("a") is None
    clock.advance(61)
    writes: list[str] = []

    def renew_before_the_takeover(name: str, _arguments: object) -> None:
        writes.append(name)
        if len(writes) == 2 and renews:
            direct.heartbeat(heartbeat("anna", lock_name="a"))

    table.before = renew_before_the_takeover
    assert (ben.try_acquire("a") is None) is renews


def test_a_lease_that_was_handed_over_is_watched_for_as_long_as_it_was_written() -> None:
    """A waiter that polls learns of it later; its lease begins when it is to ask next."""
    clock = EventfulClock()
    watched = lease_expiry.WatchedExpiry(clock)
    handed_over = Holder(
        owner_id="b" * 16,
        owner_name="ben",
        acquired_at_ms=1_000_000,
        expires_at_ms=1_000_000 + 30_000 + 60_000,
        lease_ms=60_000,
        limit=1,
        revision=1,
        fencing_token=7,
    )
    assert watched.seconds_left("a", handed_over) == pytest.approx(90 * 1.002 + 0.1)


def test_whom_it_cannot_remember_a_client_watches_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_expiry, "_MOST_WATCHED", 2)
    clock = EventfulClock()
    watched = lease_expiry.WatchedExpiry(clock)
    holders = [
        Holder(
            owner_id=f"{number:016}",
            owner_name="",
            acquired_at_ms=0,
            expires_at_ms=10_000,
            lease_ms=10_000,
            limit=1,
            revision=1,
            fencing_token=number,
        )
        for number in range(3)
    ]
    for holder in holders:
        watched.is_over("a", holder)
    clock.advance(11)
    assert [watched.is_over("a", holder) for holder in reversed(holders)] == [True, True, False]


def test_an_owner_that_was_put_out_and_granted_again_is_watched_from_then_on(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    """One that calls the acquire function, and repeats a call: same owner, first revision again."""
    direct = store_over(table, clock)
    observer = make_client("observer")
    direct.acquire(acquire("carl", lock_name="a", lease_ms=60_000))
    assert observer.try_acquire("a") is None
    clock.advance(63)
    make_client("ben", takeover="stored_expiry").acquire("a", max_wait=0).release()
    direct.acquire(acquire("carl", lock_name="a", lease_ms=60_000))
    assert observer.try_acquire("a") is None


def test_the_log_tells_how_many_were_evicted(caplog: pytest.LogCaptureFixture) -> None:
    for holders in (1, 2):
        log_event(Evicted(lock_name="a", holders=holders))
    assert caplog.messages == [
        "lock 'a': evicted a holder whose lease was over",
        "lock 'a': evicted 2 holders whose lease was over",
    ]
