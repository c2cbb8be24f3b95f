"""`pace` of both clients: waits for its slot, says why it refuses, and writes nothing then."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from fairlock import LockStoreUnavailable, SlotTooLate
from tests.contracts.client.drivers import World, done
from tests.support.faulty_table import down, mute

HOUR = 3600
REPORT: dict[str, Any] = {"name": "report", "rate": (1, HOUR)}
VENDOR: dict[str, Any] = {"name": "vendor", "rate": (10, 60)}


async def test_callers_begin_an_interval_apart(world: World) -> None:
    began: list[float] = []
    for _ in range(5):
        await done(world.locks.pace(**VENDOR))
        began.append(world.now())
    gaps = [b - a for a, b in pairwise(began)]
    assert gaps == pytest.approx([6] * 4, abs=2.1)  # AWS's time is known within two seconds.
    assert sum(gaps) >= 4 * 6


async def test_the_first_call_of_a_client_reads_the_time_and_writes_once(world: World) -> None:
    await done(world.locks.pace(**VENDOR))
    assert (world.now(), world.table.requests) == (0, ["get_item", "update_item"])


async def test_a_slot_later_than_max_wait_is_refused_and_names_the_pace(world: World) -> None:
    await done(world.locks.pace("report", rate=(1, timedelta(hours=1)), max_wait=0))
    items = dict(world.table.memory.items)
    with pytest.raises(SlotTooLate, match="pace 'report': the next slot begins in 36") as refused:
        await done(world.locks.pace(**REPORT, max_wait=timedelta(minutes=1)))
    assert isinstance(refused.value, TimeoutError)
    assert refused.value.pace_name == "report"
    assert HOUR <= refused.value.wait_seconds <= HOUR + 3
    assert world.table.memory.items == items


async def test_the_wait_is_that_of_the_client_unless_the_call_says_otherwise(world: World) -> None:
    locks = world.another(max_wait=5)
    await done(locks.pace(**VENDOR))
    with pytest.raises(SlotTooLate, match="the longest wait is 5 s"):
        await done(locks.pace(**VENDOR))


async def test_a_refusal_that_no_repeat_makes_sure_is_an_unknown_outcome(world: World) -> None:
    """Another client has reserved since the reply was lost. It would be the same for all hours."""
    await done(world.locks.pace(**VENDOR))
    world.table.will(mute())

    async def another_reserves() -> None:
        world.table.will()
        await done(world.another().pace(**REPORT, burst=2))  # So it need not wait.

    world.at(0.5, another_reserves)
    with pytest.raises(LockStoreUnavailable, match="the next one is too late"):
        await done(world.locks.pace(**REPORT, max_wait=1800))
    assert world.now() < 5


async def test_in_an_outage_a_caller_with_hours_to_wait_asks_twice_a_minute(world: World) -> None:
    world.table.will(down())
    world.at(3000, world.table.will)
    await done(world.locks.pace(**REPORT, max_wait=2 * HOUR))
    assert len(world.table.calls) < 3000 / 10
    assert world.now() < 3000 + 60


async def test_the_hourly_job_runs_although_the_first_replies_were_lost(world: World) -> None:
    world.table.will(mute())
    world.at(2, world.table.will)
    await done(world.locks.pace(**REPORT, max_wait=0))
    with pytest.raises(SlotTooLate):
        await done(world.another().pace(**REPORT, max_wait=0))
