"""Taking over from a holder that vanished, and never from one that lives, whatever the clocks say.

One process runs behind the clock that AWS has; another one's wall clock is two hours off.
"""

from __future__ import annotations

import pytest

from fairlock import Lock, LockClient, LockLost, LockWaitTimeout
from fairlock.client import local_waiters
from fairlock.client.reporting import log_event
from fairlock.protocol import outcomes
from fairlock.store.context import Evicted
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
def test_a_contender_whose_clock_is_two_hours_wrong_robs_no_one(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    contender = make_client("ben", clock=SkewedClock(clock, skew))
    assert not robs_a_renewing_holder(make_client, clock, contender)


def test_by_the_systems_clock_one_two_hours_ahead_would_rob(
    make_client: MakeClient, clock: EventfulClock, table: Table
) -> None:
    table.clock = None
    contender = make_client("ben", clock=SkewedClock(clock, TWO_HOURS))
    assert robs_a_renewing_holder(make_client, clock, contender)


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
def test_a_holder_whose_clock_is_two_hours_wrong_is_robbed_by_no_one(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    lock = make_client("anna", lease=60, clock=SkewedClock(clock, skew)).acquire("a")
    beat_every(clock, lock, 20, times=30)
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=500)
    lock.check()


def test_a_contenders_own_short_lease_is_no_measure_of_the_holders(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    assert not robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


def test_a_measure_by_the_contenders_own_lease_would_rob(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
        return date_ms >= expires_at_ms - 59_000

    for module in (outcomes, local_waiters):
        monkeypatch.setattr(module, "is_over", is_over)
    assert robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


@pytest.mark.parametrize("skew", [-TWO_HOURS, 0.0, TWO_HOURS])
@pytest.mark.parametrize("skew_of_the_dead", [-TWO_HOURS, 0.0, TWO_HOURS])
def test_a_waiting_client_replaces_a_dead_holder_after_its_lease_and_five_seconds(
    make_client: MakeClient, clock: EventfulClock, skew: float, skew_of_the_dead: float
) -> None:
    make_client("anna", lease=60, clock=SkewedClock(clock, skew_of_the_dead)).acquire("a")
    began = clock.now_ms
    make_client("ben", clock=SkewedClock(clock, skew)).acquire("a", max_wait=3600).check()
    assert 60_000 < clock.now_ms - began < 65_000


def test_a_dead_holder_that_had_renewed_is_replaced_that_long_after_its_last_renewal(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=60).acquire("a")
    beat_every(clock, lock, 20, times=2)
    began = clock.now_ms
    make_client("ben").acquire("a", max_wait=3600).check()
    assert 100_000 < clock.now_ms - began < 105_000


def test_a_single_try_replaces_a_dead_holder_from_the_date_that_shows_its_end(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    make_client("anna", lease=60).acquire("a")
    ben = make_client("ben")
    clock.advance(61.999)
    assert ben.try_acquire("a") is None
    clock.advance(0.001)
    assert ben.try_acquire("a") is not None


@pytest.mark.parametrize("renews", [True, False])
def test_a_renewal_between_the_last_look_and_the_takeover_wins(
    make_client: MakeClient, clock: EventfulClock, table: Table, *, renews: bool
) -> None:
    direct = store_over(table, clock)
    direct.acquire(acquire("anna", lock_name="a"))
    ben = make_client("ben")
    clock.advance(65)
    writes: list[str] = []

    def renew_before_the_takeover(name: str, _arguments: object) -> None:
        writes.append(name)
        if len(writes) == 2 and renews:
            direct.heartbeat(heartbeat("anna", lock_name="a"))

    table.before = renew_before_the_takeover
    assert (ben.try_acquire("a") is None) is renews


def test_the_log_tells_how_many_were_evicted(caplog: pytest.LogCaptureFixture) -> None:
    for holders in (1, 2):
        log_event(Evicted(lock_name="a", holders=holders))
    assert caplog.messages == [
        "lock 'a': evicted a holder whose lease was over",
        "lock 'a': evicted 2 holders whose lease was over",
    ]
