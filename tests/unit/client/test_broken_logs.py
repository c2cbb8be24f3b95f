"""A log whose handlers raise: no heartbeat ends by it, and no one gets its error for an answer."""

from __future__ import annotations

import logging

import pytest

from fairlock import Lock, LockClient, LockLost
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.reporting import FailsafeLogger
from tests.support.faults import lost_reply
from tests.unit.client.support.doubles import Table
from tests.unit.client.support.simulated_heartbeats import Beating

pytestmark = pytest.mark.usefixtures("broken_log")


def renewed_after_an_outage(beating: Beating, table: Table) -> list[bool]:
    """Two locks come into danger together; returns of each whether it is held an hour later."""
    held = [beating.locks.acquire(name) for name in ("a", "b")]
    table.outage = lost_reply()
    beating.pass_time(22)
    table.outage = None
    beating.pass_time(3600)
    return [lock.remaining > 0 for lock in held]


def test_with_an_ordinary_logger_the_planning_would_end(
    beating: Beating, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsafeLogger, "log", logging.LoggerAdapter.log)
    with pytest.raises(BrokenPipeError):
        renewed_after_an_outage(beating, table)


def test_a_loss_is_told_all_the_same(beating: Beating, table: Table) -> None:
    told: list[Lock] = []
    lock = beating.locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    table.outage = lost_reply()
    beating.pass_time(31)
    with pytest.raises(LockLost, match="its lease is over"):
        lock.check()
    beating.locks.close()
    assert told == [lock]


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
