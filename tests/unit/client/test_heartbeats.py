"""Heartbeats of threads: whose is next, how they are spread, and what they survive."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from fairlock import Lock, LockClient, LockEventKind
from fairlock.client.arguments import Timing
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.client.local_waiters import LocalWaiters
from fairlock.protocol.model import Grant
from fairlock.testing import ManualClock
from tests.support.faulty_table import RENEWAL, meanwhile
from tests.unit.client.conftest import Near
from tests.unit.client.doubles import Table, often_renewed


def test_a_callback_may_close_the_client() -> None:
    table, closed = Table(), threading.Event()

    def close(_lock: Lock, _reason: str) -> None:
        locks.close()
        closed.set()

    locks = often_renewed(table)
    locks.acquire("a", on_lost=close)
    table.memory.items.clear()
    assert closed.wait(20)


def test_a_callback_that_waits_for_the_end_of_the_client_does_not_prevent_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one does that joins the thread whose `with LockClient(…)` ends."""
    monkeypatch.setattr("fairlock.client.threads.CLOSE_SECONDS", 0.05)
    table, begun, closed = Table(), threading.Event(), threading.Event()

    def wait(_lock: Lock, _reason: str) -> None:
        begun.set()
        assert closed.wait(20)

    with often_renewed(table) as locks:
        locks.acquire("a", on_lost=wait)
        table.memory.items.clear()
        assert begun.wait(20)
    assert "is still busy: the client does not wait for it any longer" in caplog.text
    closed.set()


def test_heartbeats_of_as_many_locks_as_there_are_workers_are_under_way_at_a_time() -> None:
    """One after the other, those of hundreds of locks would be too late."""
    table, together = Table(), threading.Barrier(8)
    with LockClient("locks", client=table, lease=60, heartbeat_every=0.1, max_workers=8) as locks:
        held = [locks.acquire(f"lock {number}") for number in range(8)]
        table.will(meanwhile((), lambda: together.wait(20)))
        assert table.does_more(8)
        table.will()
        together.abort()
        assert all(lock.remaining > 0 for lock in held)


def test_a_release_waits_for_the_heartbeat_that_is_on_its_way(near: Near) -> None:
    lock = near.client().acquire("a")
    on_its_way, go_on = threading.Event(), threading.Event()

    def hold_it() -> None:
        on_its_way.set()
        assert go_on.wait(20)

    near.table.will(meanwhile((), hold_it, has=RENEWAL))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(lock.heartbeat)
        assert on_its_way.wait(20)
        release = pool.submit(lock.release)
        with pytest.raises(TimeoutError):
            release.result(0.2)
        assert near.table.state("a").held == 1
        go_on.set()
        assert release.result(20)
    assert near.table.state("a").holders == ()


@pytest.mark.usefixtures("broken_log")
def test_a_defect_in_the_planning_itself_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(HeartbeatSchedule, "due", fail_once)
    table = Table()
    with often_renewed(table) as locks:
        locks.acquire("a")
        assert table.does_more(2)
    assert HeartbeatSchedule.due is not fail_once, "it has failed"


# The schedule: whose heartbeat is next, and how heartbeats are spread.


def grant_at(sent: float, lease_seconds: float, name: str = "a") -> Grant:
    return Grant(
        lock_name=name,
        owner_id="o" * 16,
        fencing_token=1,
        lease_ms=round(lease_seconds * 1000),
        acquired_at_ms=0,
        expires_at_ms=0,
        since=sent,
        own_ms=round(lease_seconds * 1000),
    )


def handle_of(
    clock: ManualClock,
    *,
    lease_seconds: float = 30,
    name: str = "a",
    max_hold: float = math.inf,
    tell: Callable[[LockEventKind, str], None] = lambda _kind, _reason: None,
) -> LeaseHandle:
    lease = LocalLease(
        clock,
        grant_at(clock.monotonic(), lease_seconds, name),
        timing=Timing(heartbeat_every=None, safe_period=None),
        max_hold=max_hold,
        listener=lambda: tell,
    )
    stores = SimpleNamespace(local_waiters=LocalWaiters(clock))
    return LeaseHandle(cast("Any", stores), lease)


def schedule_of(clock: ManualClock, *leases: float, most_at_once: int = 100) -> HeartbeatSchedule:
    schedule = HeartbeatSchedule(most_at_once=most_at_once, random=random.Random(7).random)  # noqa: S311 - jitter
    for lease_seconds in leases:
        schedule.add(handle_of(clock, lease_seconds=lease_seconds))
    return schedule


def leases(heartbeats: list[ScheduledHeartbeat]) -> list[float]:
    return [scheduled.handle.lease.seconds for scheduled in heartbeats]


def test_the_lease_that_ends_first_is_renewed_first(clock: ManualClock) -> None:
    schedule = schedule_of(clock, 33, 31, 32)
    clock.advance(15)
    assert leases(schedule.due(clock.monotonic())) == [31, 32, 33]


def test_no_more_heartbeats_are_under_way_than_there_are_workers(clock: ManualClock) -> None:
    schedule = schedule_of(clock, 31, 32, 33, 34, most_at_once=2)
    clock.advance(15)
    now = clock.monotonic()
    first = schedule.due(now)
    assert (leases(first), schedule.due(now)) == ([31, 32], [])
    first[0].handle.lease.renew(grant_at(now, 31))
    schedule.done(first[0], renewed=True, now=now)
    assert leases(schedule.due(now)) == [33]


def test_locks_acquired_at_once_are_renewed_apart(clock: ManualClock) -> None:
    schedule = schedule_of(clock, *[30] * 200, most_at_once=200)
    moments: list[float] = []
    while len(moments) < 200:
        next_at = schedule.next_at()
        heartbeats = schedule.due(next_at)
        moments += [next_at] * len(heartbeats)
    began = clock.monotonic()
    assert (began + 5 <= moments[0], moments[-1] <= began + 10) == (True, True)
    assert max(later - earlier for earlier, later in pairwise(moments)) < 0.5


def test_heartbeats_that_are_late_begin_earlier(clock: ManualClock) -> None:
    def gap_when_late_by(seconds: float) -> float:
        schedule = schedule_of(clock, 30)
        for _ in range(60):
            next_at = schedule.next_at()
            (scheduled,) = schedule.due(next_at)
            sent = next_at + seconds
            clock.stall(sent - clock.monotonic())
            scheduled.handle.lease.renew(grant_at(sent, 30))
            schedule.done(scheduled, renewed=True, now=sent)
        return scheduled.due_at - sent

    assert 9 <= gap_when_late_by(0) <= 10
    assert 6 <= gap_when_late_by(3) <= 7.1
    assert 4.5 <= gap_when_late_by(8) <= 5  # Never more often than twice as often.


def test_the_end_of_a_lease_is_noticed_although_its_heartbeat_hangs(clock: ManualClock) -> None:
    schedule = schedule_of(clock, 30)
    clock.advance(15)
    (hanging,) = schedule.due(clock.monotonic())
    clock.advance(15)
    assert schedule.next_at() <= clock.monotonic()
    schedule.due(clock.monotonic())
    assert schedule.handles() == []
    assert hanging.handle.lease.has_ended


def test_a_lock_whose_max_hold_is_over_is_released_once(clock: ManualClock) -> None:
    schedule = schedule_of(clock)
    schedule.add(handle_of(clock, max_hold=5))
    clock.advance(5)
    (release,) = schedule.due(clock.monotonic())
    schedule.done(release, renewed=False, now=clock.monotonic())
    clock.advance(30)
    assert schedule.due(clock.monotonic()) == []


def test_a_renewal_that_comes_in_the_moment_of_the_end_wins(clock: ManualClock) -> None:
    lease = handle_of(clock).lease
    clock.advance(30)
    assert lease.is_over()
    lease.renew(grant_at(clock.monotonic(), 30))
    lease.lose("its lease is over", only_if_over=True)
    assert lease.is_held()


def test_a_listener_that_raises_delays_no_heartbeat(clock: ManualClock) -> None:
    """No thread can be started to call a callback, for instance."""
    told = []

    def listen(_kind: LockEventKind, reason: str) -> None:
        told.append(reason)
        raise RuntimeError(reason)

    schedule = schedule_of(clock, 31)
    schedule.add(handle_of(clock, tell=listen))
    clock.advance(29)
    assert sorted(leases(schedule.due(clock.monotonic()))) == [30, 31]
    assert len(told) == 1


def test_locks_that_come_and_go_leave_no_entries_behind(clock: ManualClock) -> None:
    schedule = schedule_of(clock, 30)
    handle = handle_of(clock)
    for _ in range(5_000):
        schedule.add(handle)
        schedule.remove(handle)
    assert len(schedule._agenda) < 1_100  # noqa: SLF001 - memory is not otherwise visible
    assert len(schedule.handles()) == 1
