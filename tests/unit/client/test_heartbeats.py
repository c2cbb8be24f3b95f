"""Heartbeats of threads: whose is next, how they are spread, and what they survive."""

from __future__ import annotations

import logging
import math
import random
import threading
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost
from fairlock.client.arguments import Timing
from fairlock.client.connection import Connection, StoreFactory
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.reporting import FailsafeLogger
from fairlock.protocol.model import Grant, LockState
from fairlock.store import keep_alive
from tests.support import moved_clock
from tests.support.faulty_table import lost_reply
from tests.unit.client.conftest import Beating, MakeClient
from tests.unit.client.doubles import EventfulClock, Table


class Told:
    """What the callbacks of a lock were told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.reasons: list[str] = []
        self.came = threading.Condition()

    def of(self, what: str) -> Any:  # noqa: ANN401 - a callback
        def tell(lock: Lock, reason: str) -> None:
            with self.came:
                self.reasons.append(reason)
                self.events.append((what, lock.name))
                self.came.notify_all()

        return tell

    def wait_for(self, number: int) -> list[tuple[str, str]]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.events) >= number, timeout=20), self.events
            return list(self.events)


def acquire_told(beating: Beating) -> tuple[Lock, Told]:
    told = Told()
    lock = beating.locks.acquire("a", on_danger=told.of("danger"), on_lost=told.of("lost"))
    return lock, told


def test_a_heartbeat_bound_to_the_last_one_seen_would_take_a_lost_reply_for_a_theft(
    beating: Beating, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both protections switched off: each heartbeat expects the revision that the last one told,

    and takes a refusal for a loss without a look at who holds.
    """
    monkeypatch.setattr(keep_alive, "read_state", lambda _item: LockState())
    lock, told = acquire_told(beating)
    known = {"revision": "1"}

    def expect_what_was_told(name: str, arguments: dict[str, Any]) -> None:
        if name == "update_item" and "#h_revision" in arguments["ExpressionAttributeNames"]:
            arguments["ConditionExpression"] += " AND #mine.#h_revision = :known"
            arguments["ExpressionAttributeValues"] |= {":known": {"N": known["revision"]}}

    table.before = expect_what_was_told
    table.loses_replies = True
    beating.pass_time(12)
    table.loses_replies = False
    beating.pass_time(12)
    assert lock.lost.is_set()
    assert told.wait_for(1)[-1] == ("lost", "a")


def test_a_callback_may_close_the_client(beating: Beating, table: Table) -> None:
    closed = threading.Event()

    def close(_lock: Lock, _reason: str) -> None:
        beating.locks.close()
        closed.set()

    beating.locks.acquire("a", on_lost=close)
    table.outage = lost_reply()
    beating.pass_time(31)
    assert closed.wait(20)


def ends_beside_a_busy_callback(beating: Beating, table: Table, *, within: float) -> bool:
    """Closes a client whose callback waits for just that; returns whether it ends in time."""
    begun, closed = threading.Event(), threading.Event()

    def wait(_lock: Lock, _reason: str) -> None:
        begun.set()
        assert closed.wait(20)

    beating.locks.acquire("a", on_lost=wait)
    table.outage = lost_reply()
    beating.pass_time(31)
    assert begun.wait(20)
    closing = threading.Thread(target=beating.locks.close)
    closing.start()
    closing.join(within)
    ended = not closing.is_alive()
    closed.set()
    closing.join(20)
    return ended


def test_a_callback_that_waits_for_the_end_of_the_client_does_not_prevent_it(
    beating: Beating,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one does that joins the thread whose `with LockClient(…)` ends."""
    monkeypatch.setattr("fairlock.client.threads.CLOSE_SECONDS", 0.05)
    assert ends_beside_a_busy_callback(beating, table, within=20)
    assert "is still busy: the client does not wait for it any longer" in caplog.text


def test_without_a_bound_both_would_wait_for_each_other(
    beating: Beating, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.client.threads.CLOSE_SECONDS", 60)
    assert not ends_beside_a_busy_callback(beating, table, within=0.3)


class Race:
    """A heartbeat that is on its way to the table when the lock is released."""

    def __init__(self, make_client: MakeClient, table: Table) -> None:
        self.table = table
        self.log = table.log
        self.lock = make_client().acquire("a")
        self.on_its_way, self.go_on = threading.Event(), threading.Event()
        table.before = self._hold_the_heartbeat

    def _hold_the_heartbeat(self, _name: str, arguments: dict[str, Any]) -> None:
        if "#h_revision = #mine.#h_revision + :one" in arguments.get("UpdateExpression", ""):
            self.on_its_way.set()
            assert self.go_on.wait(20)
            self.log.append("heartbeat")

    def run(self) -> list[str]:
        """What was written, and when the release returned, in order."""
        self.log.clear()
        in_flight = threading.Thread(target=self._beat)
        in_flight.start()
        assert self.on_its_way.wait(20)
        releases = threading.Thread(target=self._release)
        releases.start()
        releases.join(0.3)  # It either waits for the heartbeat, or is done by now.
        self.go_on.set()
        releases.join(20)
        in_flight.join(20)
        return [entry for entry in self.log if entry != "update_item"]

    def _beat(self) -> None:
        try:
            self.lock.heartbeat()
        except LockLost:
            self.log.append("too late")

    def _release(self) -> None:
        self.lock.release()
        self.log.append("released")


def test_a_release_waits_for_the_heartbeat_that_is_on_its_way(
    make_client: MakeClient, table: Table
) -> None:
    race = Race(make_client, table)
    assert race.run()[0] == "heartbeat"
    assert race.log[-1] == "released" or race.log[-2:] == ["released", "too late"]
    assert table.state("a").holders == ()


def test_without_that_the_heartbeat_would_land_after_the_release_and_still_revive_nothing(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LeaseHandle.__init__

    def one_request_off(self: LeaseHandle, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - any
        create(self, *args, **{**kwargs, "mutex": nullcontext()})

    monkeypatch.setattr(LeaseHandle, "__init__", one_request_off)
    race = Race(make_client, table)
    assert race.run() == ["released", "heartbeat", "too late"]
    assert (table.state("a").holders, table.state("a").held) == ((), 0)


# A log whose handlers raise: no heartbeat ends by it, and no one gets its error for an answer.


def renewed_after_an_outage(beating: Beating, table: Table) -> list[bool]:
    """Two locks come into danger together; returns of each whether it is held an hour later."""
    held = [beating.locks.acquire(name) for name in ("a", "b")]
    table.outage = lost_reply()
    beating.pass_time(22)
    table.outage = None
    beating.pass_time(3600)
    return [lock.remaining > 0 for lock in held]


@pytest.mark.usefixtures("broken_log")
def test_with_an_ordinary_logger_the_planning_would_end(
    beating: Beating, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsafeLogger, "log", logging.LoggerAdapter.log)
    with pytest.raises(BrokenPipeError):
        renewed_after_an_outage(beating, table)


@pytest.mark.usefixtures("broken_log")
def test_a_loss_is_told_all_the_same(beating: Beating, table: Table) -> None:
    told: list[Lock] = []
    lock = beating.locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    table.outage = lost_reply()
    beating.pass_time(31)
    with pytest.raises(LockLost, match="its lease is over"):
        lock.check()
    beating.locks.close()
    assert told == [lock]


@pytest.mark.usefixtures("broken_log")
@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError])
def test_a_defect_in_the_planning_itself_is_survived(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    due = HeartbeatSchedule.due
    defects = [error()]

    def fail_once(self: HeartbeatSchedule, now: float) -> list[ScheduledHeartbeat]:
        if defects:
            raise defects.pop()
        return due(self, now)

    monkeypatch.setattr(HeartbeatSchedule, "due", fail_once)
    table = Table()
    with LockClient("locks", client=table, lease=60, heartbeat_every=0.1) as locks:  # type: ignore[arg-type]  # a substitute
        locks.acquire("a")
        assert table.does_more(2)
    assert defects == []


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
