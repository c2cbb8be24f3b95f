"""A log whose handlers raise, and other defects: heartbeats go on, in the event loop too."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.reporting import FailsafeLogger
from tests.support.faults import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time

pytestmark = pytest.mark.usefixtures("broken_log")


async def held_after_an_outage(make_client: MakeClient, table: AsyncTable) -> list[bool]:
    """Two locks come into danger together; returns of each whether it is held an hour later."""
    locks = make_client()
    held = [await locks.acquire(name) for name in ("a", "b")]
    table.outage = lost_reply()
    await asyncio.sleep(22)
    table.outage = None
    await asyncio.sleep(3600)
    still = [lock.remaining > 0 for lock in held]
    await locks.close()
    return still


def fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    due = HeartbeatSchedule.due
    defects = [ZeroDivisionError()]

    def fail(self: HeartbeatSchedule, now: float) -> list[ScheduledHeartbeat]:
        if defects:
            raise defects.pop()
        return due(self, now)

    monkeypatch.setattr(HeartbeatSchedule, "due", fail)


@in_virtual_time
async def test_a_defect_in_the_planning_itself_is_survived(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_once(monkeypatch)
    assert await held_after_an_outage(make_client, table) == [True, True]


@in_virtual_time
async def test_with_an_ordinary_logger_that_would_end_the_planning(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailsafeLogger, "log", logging.LoggerAdapter.log)
    fail_once(monkeypatch)
    locks = make_client()
    lock = await locks.acquire("a")
    planner = locks._services.heartbeats._scheduler  # noqa: SLF001 - nothing outside tells that
    assert planner is not None
    await asyncio.sleep(300)
    assert isinstance(planner.exception(), BrokenPipeError)
    assert table.names() == ["update_item"]
    monkeypatch.undo()
    await lock.release()
