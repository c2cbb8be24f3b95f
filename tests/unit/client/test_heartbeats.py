"""Heartbeats: they go on after outages, tell of danger and loss once, and end with the release."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.reporting import FailsafeLogger
from fairlock.protocol.model import LockState
from fairlock.store import keep_alive
from tests.support.faults import lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import Table
from tests.unit.client.support.simulated_heartbeats import Beating


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
