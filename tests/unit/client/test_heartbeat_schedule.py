"""The schedule: whose heartbeat is next, and how heartbeats are spread."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from fairlock.client.arguments import Timing
from fairlock.client.connection import Connection, StoreFactory
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.client.local_waiters import LocalWaiters
from fairlock.protocol.outcomes import Grant
from tests.support import moved_clock
from tests.unit.client.support.doubles import EventfulClock, Table


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


def handle_of(clock: EventfulClock, *, lease_seconds: float = 30, name: str = "a") -> LeaseHandle:
    connection = Connection(
        session=None,
        dynamodb=Table(),  # type: ignore[arg-type]  # replaces a client
        stepfunctions=None,
        most_at_once=1,
    )
    stores = StoreFactory(
        connection=connection,
        table_name="locks",
        clock=clock,
        aws_clock=moved_clock(clock),
        local_waiters=LocalWaiters(clock),
    )
    lease = LocalLease(
        clock,
        grant_at(clock.monotonic(), lease_seconds, name),
        timing=Timing(heartbeat_every=None, safe_period=None),
        on_lost=lambda _reason: None,
        on_danger=lambda _reason: None,
        on_released=lambda: None,
    )
    return LeaseHandle(stores, lease)


def schedule_of(clock: EventfulClock, *leases: float, most_at_once: int = 100) -> HeartbeatSchedule:
    schedule = HeartbeatSchedule(most_at_once=most_at_once, random=random.Random(7).random)  # noqa: S311 - jitter
    for lease_seconds in leases:
        schedule.add(handle_of(clock, lease_seconds=lease_seconds))
    return schedule


def leases(heartbeats: list[ScheduledHeartbeat]) -> list[float]:
    return [scheduled.handle.lease.seconds for scheduled in heartbeats]


def test_the_lease_that_ends_first_is_renewed_first(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 33, 31, 32)
    clock.advance(15)
    assert leases(schedule.due(clock.monotonic())) == [31, 32, 33]


def test_no_more_heartbeats_are_under_way_than_there_are_workers(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 31, 32, 33, 34, most_at_once=2)
    clock.advance(15)
    now = clock.monotonic()
    first = schedule.due(now)
    assert (leases(first), schedule.due(now)) == ([31, 32], [])
    first[0].handle.lease.renew(grant_at(now, 31))
    schedule.done(first[0], renewed=True, now=now)
    assert leases(schedule.due(now)) == [33]


def test_locks_acquired_at_once_are_renewed_apart(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, *[30] * 200, most_at_once=200)
    moments: list[float] = []
    while len(moments) < 200:
        next_at = schedule.next_at()
        heartbeats = schedule.due(next_at)
        moments += [next_at] * len(heartbeats)
    began = clock.monotonic()
    assert (began + 5 <= moments[0], moments[-1] <= began + 10) == (True, True)
    assert max(later - earlier for earlier, later in pairwise(moments)) < 0.5


def test_heartbeats_that_are_late_begin_earlier(clock: EventfulClock) -> None:
    def gap_when_late_by(seconds: float) -> float:
        schedule = schedule_of(clock, 30)
        for _ in range(60):
            next_at = schedule.next_at()
            (scheduled,) = schedule.due(next_at)
            sent = next_at + seconds
            clock.now_ms = round(sent * 1000)
            scheduled.handle.lease.renew(grant_at(sent, 30))
            schedule.done(scheduled, renewed=True, now=sent)
        return scheduled.due_at - sent

    assert 9 <= gap_when_late_by(0) <= 10
    assert 6 <= gap_when_late_by(3) <= 7.1
    assert 4.5 <= gap_when_late_by(8) <= 5  # Never more often than twice as often.


def test_a_heartbeat_of_unknown_outcome_is_repeated_soon_and_until_the_end(
    clock: EventfulClock,
) -> None:
    schedule = schedule_of(clock, 30)
    tries = []
    while (next_at := schedule.next_at()) < math.inf:
        clock.now_ms = round(next_at * 1000) + 1
        for scheduled in schedule.due(clock.monotonic()):
            tries.append(clock.monotonic())
            schedule.done(scheduled, renewed=False, now=clock.monotonic())
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert max(pauses) < 4
    assert len(tries) > 15
    assert schedule.handles() == []  # Its lease is over.


def test_a_lock_that_was_taken_out_has_no_further_heartbeat(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 30, most_at_once=0)
    clock.advance(10)
    assert schedule.due(clock.monotonic()) == []
    schedule.remove(schedule.handles()[0])
    schedule.most_at_once = 1
    assert (schedule.due(clock.monotonic()), schedule.handles()) == ([], [])


def test_locks_that_come_and_go_leave_no_entries_behind(
    clock: EventfulClock,
) -> None:
    schedule = schedule_of(clock, 30)
    handle = handle_of(clock)
    for _ in range(5_000):
        schedule.add(handle)
        schedule.remove(handle)
    assert len(schedule._agenda) < 1_100  # noqa: SLF001 - memory is not otherwise visible
    assert len(schedule.handles()) == 1
