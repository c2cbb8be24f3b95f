"""`max_hold`: the longest time to hold a lock. Danger is told, then the loss; then it is free.

The lease is 60 s: heartbeats about every 20 s, danger 20 s before the end.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from fairlock import InvalidRequest, Lock, LockClient, LockLost
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.testing import FakeLockClient

HOLD = 600
SAFE = 20
NEARLY_OVER = "its max_hold of 600 s is nearly over"
OVER = "its max_hold of 600 s is over"


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


class Told:
    """What the callbacks of a lock were told, and when, counted from the grant."""

    def __init__(self, locks: FakeLockClient) -> None:
        self.events: list[tuple[str, str, int]] = []
        self._locks = locks
        self._began = locks.clock.monotonic()

    def of(self, what: str) -> Any:  # noqa: ANN401 - a callback
        def tell(_lock: Lock, reason: str) -> None:
            after = self._locks.clock.monotonic() - self._began
            self.events.append((what, reason, round(after)))

        return tell


def acquire_told(locks: FakeLockClient, max_hold: float = HOLD) -> tuple[Lock, Told]:
    told = Told(locks)
    callbacks = {"on_danger": told.of("danger"), "on_lost": told.of("lost")}
    return locks.acquire("a", max_hold=max_hold, **callbacks), told


def is_taken(locks: LockClient) -> bool:
    found = locks.describe("a")
    return found is not None and bool(found.holders)


def seconds_to_grant(locks: FakeLockClient) -> float:
    began = locks.clock.monotonic()
    locks.another().acquire("a", max_wait=3600)
    return locks.clock.monotonic() - began


def test_danger_is_told_a_safe_period_before_the_end_and_the_loss_at_the_end(
    locks: FakeLockClient,
) -> None:
    lock, told = acquire_told(locks)
    locks.clock.advance(HOLD - 1)
    lock.check()
    locks.clock.advance(3600)
    assert told.events == [("danger", NEARLY_OVER, HOLD - SAFE), ("lost", OVER, HOLD)]
    with pytest.raises(LockLost, match=f"lock 'a': {OVER}"):
        lock.check()
    assert lock.lost.is_set()
    assert (lock.remaining, lock.hold_remaining) == (0, 0)


def test_a_renewal_does_not_end_the_danger_of_a_hold_that_is_nearly_over(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the mark each heartbeat of the last seconds would tell it once more."""
    _, told = acquire_told(locks)
    locks.clock.advance(HOLD + 1)
    assert [what for what, _, _ in told.events] == ["danger", "lost"]

    forget = LocalLease.renew

    def renew(self: LocalLease, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as it is
        self._is_hold_nearly_over = False
        forget(self, *args, **options)

    monkeypatch.setattr(LocalLease, "renew", renew)
    lock, told = acquire_told(locks.another())
    locks.clock.advance(HOLD - SAFE + 1)
    lock.heartbeat()
    locks.clock.advance(SAFE)
    assert len([what for what, _, _ in told.events if what == "danger"]) > 1


def test_the_lock_is_free_for_a_waiter_when_max_hold_is_over(locks: FakeLockClient) -> None:
    acquire_told(locks)
    assert HOLD <= seconds_to_grant(locks) <= HOLD + 5


def frozen_before_the_end(locks: FakeLockClient) -> float:
    """The holder's process stops 15 s before the end, just after a heartbeat, and never goes on."""
    lock, _ = acquire_told(locks)
    locks.clock.advance(HOLD - 15)
    lock.heartbeat()
    locks.close()
    return seconds_to_grant(locks) + HOLD - 15


def test_a_process_that_freezes_near_the_end_holds_the_lock_no_longer(
    locks: FakeLockClient,
) -> None:
    assert HOLD <= frozen_before_the_end(locks) <= HOLD + 8


def test_renewals_that_are_not_cut_short_would_keep_it_for_a_lease(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalLease, "lease_ms_until_end", lambda _self, lease_ms: lease_ms)
    assert frozen_before_the_end(locks) > HOLD + 40


def released_at_the_end(locks: FakeLockClient) -> bool:
    acquire_told(locks)
    locks.clock.advance(HOLD)
    return not is_taken(locks)


def test_the_client_releases_the_lock_at_the_end(locks: FakeLockClient) -> None:
    assert released_at_the_end(locks)


def test_without_that_release_a_sleeping_waiter_would_not_be_told(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaseHandle, "_give_back", lambda _self: None)
    assert not released_at_the_end(locks)


def test_a_body_that_overruns_ends_with_lock_lost_and_without_a_further_request(
    locks: FakeLockClient,
) -> None:
    locks.clock.at(HOLD + 1, locks.table.requests.clear)
    with pytest.raises(LockLost, match=OVER), locks.hold("a", max_hold=HOLD):
        locks.clock.advance(HOLD + 2)
    assert locks.table.requests == []


def test_a_body_that_overruns_does_not_release_the_next_holder(locks: FakeLockClient) -> None:
    taken: list[Lock] = []
    locks.clock.at(HOLD + 1, lambda: taken.append(locks.another().acquire("a", max_wait=0)))
    with pytest.raises(LockLost), locks.hold("a", max_hold=HOLD):
        locks.clock.advance(HOLD + 2)
    taken[0].check()
    assert is_taken(locks)


def test_what_the_body_raises_leaves_it_with_a_note(locks: FakeLockClient) -> None:
    def work() -> None:
        locks.clock.advance(HOLD + 1)
        raise RuntimeError

    with pytest.raises(RuntimeError) as raised, locks.hold("a", max_hold=HOLD):
        work()
    assert OVER in raised.value.__notes__[0]


def test_nothing_may_be_written_under_a_lock_whose_max_hold_is_over(
    locks: FakeLockClient,
) -> None:
    lock, _ = acquire_told(locks)
    locks.clock.advance(HOLD)
    sent = len(locks.table.requests)
    with pytest.raises(LockLost, match=OVER):
        lock.transact_write([{"Delete": {"TableName": "t", "Key": {"id": {"S": "1"}}}}])
    with pytest.raises(LockLost, match=OVER):
        lock.heartbeat()
    assert len(locks.table.requests) == sent


def test_a_heartbeat_of_ones_own_does_not_hold_the_lock_longer(locks: FakeLockClient) -> None:
    lock, told = acquire_told(locks)
    locks.clock.advance(300)
    lock.heartbeat(lease=3600)
    locks.clock.advance(3600)
    assert told.events[-1] == ("lost", OVER, HOLD)


def test_a_process_that_was_frozen_past_the_end_finds_its_lock_lost_at_the_first_question(
    locks: FakeLockClient,
) -> None:
    lock, _ = acquire_told(locks)
    locks.close()  # No heartbeat thread runs any more.
    locks.clock.advance(HOLD)
    assert lock.lost.is_set()


def test_an_outage_is_told_as_an_outage(locks: FakeLockClient) -> None:
    lock, told = acquire_told(locks)
    locks.clock.advance(300)
    locks.table.is_down = True
    locks.clock.advance(120)
    assert [what for what, _, _ in told.events] == ["danger", "lost"]
    assert not any("max_hold" in reason for _, reason, _ in told.events)
    with pytest.raises(LockLost, match="its lease is over"):
        lock.check()


def test_in_an_outage_at_the_end_the_release_is_tried_and_the_lease_ends_the_lock(
    locks: FakeLockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock, _ = acquire_told(locks)
    locks.clock.advance(HOLD - 1)
    locks.table.is_down = True
    with caplog.at_level(logging.WARNING):
        locks.clock.advance(60)
    assert "not released at the end of its max_hold; its lease ends it" in caplog.text
    locks.table.is_down = False
    assert lock.release() is False
    assert seconds_to_grant(locks) == 0


def test_a_client_without_heartbeats_ends_it_too(locks: FakeLockClient) -> None:
    client = locks.another(heartbeat_every=math.inf)
    lock = client.acquire("a", lease=300, max_hold=200)
    client.clock.advance(199)
    lock.check()
    client.clock.advance(1)
    assert lock.lost.is_set()
    assert not is_taken(client)


@pytest.mark.parametrize(("every", "stored"), [(math.inf, 22 / 0.98), (15, 60)])
def test_what_no_heartbeat_shortens_is_stored_no_longer_than_it_may_last(
    locks: FakeLockClient, every: float, stored: float
) -> None:
    """A frozen process gives nothing back: its lease frees the lock."""
    client = locks.another(heartbeat_every=every, safe_period=5)
    client.acquire("a", lease=60, max_hold=21)
    found = client.describe("a")
    assert found is not None
    assert found.holders[0].lease == pytest.approx(stored, abs=0.001)


def requests_of(locks: FakeLockClient, seconds: float, max_hold: float | None = None) -> list[str]:
    before = len(locks.table.requests)
    with locks.hold("a", max_hold=max_hold):
        locks.clock.advance(seconds)
    return locks.table.requests[before:]


def test_it_costs_no_further_request(locks: FakeLockClient) -> None:
    assert requests_of(locks, 0, max_hold=HOLD) == ["update_item"] * 2
    plain = requests_of(locks, HOLD - 1)
    assert requests_of(locks, HOLD - 1, max_hold=HOLD) == plain
    assert requests_of(locks, 1000) == requests_of(locks, 1000, max_hold=10_000)


def test_heartbeats_do_not_come_faster_towards_the_end(locks: FakeLockClient) -> None:
    sent: list[float] = []
    renew = LeaseHandle.heartbeat

    def note(self: LeaseHandle, **options: Any) -> None:  # noqa: ANN401 - as it is
        sent.append(locks.clock.monotonic())
        renew(self, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LeaseHandle, "heartbeat", note)
        acquire_told(locks)
        locks.clock.advance(HOLD + 60)
    assert min(later - earlier for earlier, later in pairwise(sent)) > 15


def test_the_caller_may_ask_how_long_it_may_hold(locks: FakeLockClient) -> None:
    lock, _ = acquire_told(locks)
    locks.clock.advance(100)
    assert lock.hold_remaining == pytest.approx(HOLD - 100)
    assert locks.acquire("b").hold_remaining == math.inf


def test_a_timedelta_is_a_length_too(locks: FakeLockClient) -> None:
    lock = locks.acquire("a", max_hold=timedelta(minutes=10))
    assert lock.hold_remaining == HOLD


@pytest.mark.parametrize(
    "wrong", [0, -1, 39.9, math.inf, math.nan, True, "600", timedelta(seconds=30), 10**400]
)
def test_a_length_that_makes_no_sense_is_refused_before_anything_is_sent(
    locks: FakeLockClient,
    wrong: Any,  # noqa: ANN401 - of any type
) -> None:
    rule = r"max_hold: must be a number of seconds, at least 40 with a lease of 60 s"
    calls: tuple[Any, ...] = (locks.hold, locks.acquire, locks.try_acquire)
    for call in calls:
        with pytest.raises(InvalidRequest, match=rule), call("a", max_hold=wrong):
            pytest.fail("it began")
    assert locks.table.requests == []


def test_the_shortest_length_is_taken_and_one_beyond_all_time(locks: FakeLockClient) -> None:
    locks.acquire("a", max_hold=40)
    locks.acquire("b", lease=15, max_hold=10)
    endless = locks.acquire("c", max_hold=1e308)
    locks.clock.advance(600)
    endless.check()


def test_an_inner_block_is_ended_by_the_max_hold_of_the_outer_one(locks: FakeLockClient) -> None:
    def work() -> None:
        locks.clock.advance(HOLD - 100)
        with locks.hold("a", reentrant=True) as inner:
            left.append(inner.hold_remaining)
            locks.clock.advance(100)
        left.append(0)

    left: list[float] = []
    with pytest.raises(LockLost, match=OVER), locks.hold("a", max_hold=HOLD):
        work()
    assert left == [pytest.approx(100)]


@pytest.mark.parametrize("outer", [None, 900])
def test_an_inner_block_may_not_have_a_max_hold_of_its_own(
    locks: FakeLockClient, outer: float | None
) -> None:
    rule = "max_hold: must be left out, or be that of the outer block"
    with locks.hold("a", max_hold=outer):
        sent = len(locks.table.requests)
        with (
            pytest.raises(InvalidRequest, match=rule),
            locks.hold("a", reentrant=True, max_hold=HOLD),
        ):
            pytest.fail("it began")
        assert len(locks.table.requests) == sent


def test_each_of_several_locks_ends_with_its_own_max_hold(locks: FakeLockClient) -> None:
    def work() -> None:
        locks.clock.advance(HOLD - 1)
        assert is_taken(locks)
        locks.clock.advance(1)
        assert not is_taken(locks)

    with pytest.raises(LockLost, match=OVER), locks.hold_all(["b", "a"], max_hold=HOLD):
        work()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_hold": 100}, r"max_hold: must be longer than max_wait \(120 s\)"),
        ({"max_hold": 600, "max_wait": 600}, r"max_hold: must be longer than max_wait \(600 s\)"),
        ({"max_hold": 30, "max_wait": 0}, "max_hold: must be a number of seconds, at least 40"),
        ({"max_hold": "600"}, "max_hold: must be a number of seconds"),
    ],
)
def test_several_locks_need_a_max_hold_that_outlasts_the_wait_for_the_others(
    locks: FakeLockClient, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidRequest, match=told):
        locks.hold_all(["a", "b"], **options)
    assert locks.table.requests == []


def terms_of(locks: FakeLockClient, *, last: int, max_hold: float | None) -> list[int]:
    """When each term of a leader ended, counted from its beginning."""
    terms: list[int] = []

    def work(_lock: Lock, stop: threading.Event) -> None:
        began = locks.clock.monotonic()
        if len(terms) < last:
            stop.wait(3600)
            terms.append(round(locks.clock.monotonic() - began))

    locks.lead("exporter", work, max_hold=max_hold)
    return terms


def test_a_leader_is_told_in_time_and_leads_again_behind_those_that_wait(
    locks: FakeLockClient,
) -> None:
    assert terms_of(locks, last=3, max_hold=HOLD) == [HOLD - SAFE] * 3


def test_without_max_hold_a_leader_goes_on(locks: FakeLockClient) -> None:
    assert terms_of(locks, last=1, max_hold=None) == [3600]


def test_a_leader_with_a_max_hold_that_makes_no_sense_is_refused(locks: FakeLockClient) -> None:
    with pytest.raises(InvalidRequest, match="max_hold: must be a number of seconds, at least 40"):
        locks.lead("exporter", lambda _lock, _stop: None, max_hold=39)
    assert locks.table.requests == []
