"""`max_hold`: the longest time to hold a lock. Danger is told, then the loss; then it is free.

The lease is 60 s: heartbeats about every 20 s, danger 20 s before the end.
"""

from __future__ import annotations

import logging
import math
import threading
from datetime import timedelta
from typing import Any

import pytest

from fairlock import Lock, LockLost
from tests.contracts.client.drivers import Told, World, done, inside
from tests.support.faulty_table import down

HOLD = 600
SAFE = 20
NEARLY_OVER = "its max_hold of 600 s is nearly over"
OVER = "its max_hold of 600 s is over"


async def acquire_told(world: World, name: str = "a") -> tuple[Any, Told]:
    told = Told(world)
    return await done(world.locks.acquire(name, max_hold=HOLD, **told.callbacks())), told


async def is_taken(world: World, name: str = "a") -> bool:
    found = await done(world.locks.describe(name))
    return found is not None and bool(found.holders)


async def seconds_to_grant(world: World) -> float:
    began = world.now()
    await done(world.another().acquire("a", max_wait=3600))
    return world.now() - began


async def test_danger_is_told_a_safe_period_before_the_end_and_loss_at_it(world: World) -> None:
    lock, told = await acquire_told(world)
    await world.sleep(HOLD - 1)
    lock.check()
    await world.sleep(3600)
    assert (told.what, told.reasons) == (["danger", "lost"], [NEARLY_OVER, OVER])
    assert told.after == pytest.approx([HOLD - SAFE, HOLD], abs=0.5)
    with pytest.raises(LockLost, match=f"lock 'a': {OVER}"):
        lock.check()
    assert lock.lost.is_set()
    assert (lock.remaining, lock.hold_remaining) == (0, 0)


async def test_no_renewal_ends_the_danger_of_a_hold_that_is_nearly_over(world: World) -> None:
    lock, told = await acquire_told(world)
    await world.sleep(HOLD - SAFE + 1)
    await done(lock.heartbeat())
    await world.sleep(SAFE)
    assert told.what == ["danger", "lost"]


async def test_the_client_releases_the_lock_at_the_end_for_a_waiter(world: World) -> None:
    await acquire_told(world)
    assert HOLD <= await seconds_to_grant(world) <= HOLD + 5
    await acquire_told(world, name="b")
    await world.sleep(HOLD)
    assert not await is_taken(world, "b")


async def test_a_process_that_freezes_near_the_end_holds_the_lock_no_longer(world: World) -> None:
    """It stops 15 s before the end, just after a heartbeat, and never goes on."""
    lock, _ = await acquire_told(world)
    await world.sleep(HOLD - 15)
    await done(lock.heartbeat())
    await done(world.locks.close())
    assert 15 <= await seconds_to_grant(world) <= 15 + 8


async def test_a_body_that_overruns_is_told_and_leaves_the_next_holder_alone(world: World) -> None:
    taken: list[Lock] = []

    async def take() -> None:
        taken.append(await done(world.another().acquire("a", max_wait=0)))
        world.table.requests.clear()

    world.at(HOLD + 1, take)
    with pytest.raises(LockLost, match=OVER):
        async with inside(world.locks.hold("a", max_hold=HOLD)):
            await world.sleep(HOLD + 2)
    assert world.table.requests == []
    taken[0].check()


async def test_nothing_may_be_written_under_a_lock_whose_max_hold_is_over(world: World) -> None:
    lock, _ = await acquire_told(world)
    await world.sleep(HOLD + 1)
    sent = len(world.table.requests)
    with pytest.raises(LockLost, match=OVER):
        await done(lock.transact_write([{"Delete": {"TableName": "t", "Key": {"id": {"S": "1"}}}}]))
    with pytest.raises(LockLost, match=OVER):
        await done(lock.heartbeat())
    assert len(world.table.requests) == sent


async def test_a_heartbeat_of_ones_own_does_not_hold_the_lock_longer(world: World) -> None:
    lock, told = await acquire_told(world)
    await world.sleep(300)
    await done(lock.heartbeat(lease=3600))
    await world.sleep(3600)
    assert (told.what[-1], told.reasons[-1], round(told.after[-1])) == ("lost", OVER, HOLD)


async def test_an_outage_is_told_as_an_outage(world: World) -> None:
    lock, told = await acquire_told(world)
    await world.sleep(300)
    world.table.will(down())
    await world.sleep(120)
    assert told.what == ["danger", "lost"]
    assert not any("max_hold" in reason for reason in told.reasons)
    with pytest.raises(LockLost, match="its lease is over"):
        lock.check()


async def test_in_an_outage_at_the_end_the_release_is_tried_and_the_lease_ends_the_lock(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    lock, _ = await acquire_told(world)
    await world.sleep(HOLD - 1)
    world.table.will(down())
    with caplog.at_level(logging.WARNING):
        await world.sleep(60)
    assert "not released at the end of its max_hold; its lease ends it" in caplog.text
    world.table.will()
    assert await done(lock.release()) is False
    assert await seconds_to_grant(world) == 0


async def test_a_client_without_heartbeats_ends_it_too(world: World) -> None:
    client = world.another(heartbeat_every=math.inf)
    lock = await done(client.acquire("a", lease=300, max_hold=200))
    await world.sleep(199)
    lock.check()
    await world.sleep(1)
    assert lock.lost.is_set()
    assert not await is_taken(world)


@pytest.mark.parametrize(("every", "stored"), [(math.inf, 22 / 0.98), (15, 60)])
async def test_what_no_heartbeat_shortens_is_stored_no_longer_than_it_may_last(
    world: World, every: float, stored: float
) -> None:
    """A frozen process gives nothing back: its lease frees the lock."""
    client = world.another(heartbeat_every=every, safe_period=5)
    await done(client.acquire("a", lease=60, max_hold=21))
    found = await done(client.describe("a"))
    assert found is not None
    assert found.holders[0].lease == pytest.approx(stored, abs=0.001)


async def requests_of(world: World, seconds: float, max_hold: float | None = None) -> list[str]:
    before = len(world.table.requests)
    async with inside(world.locks.hold("a", max_hold=max_hold)):
        await world.sleep(seconds)
    return world.table.requests[before:]


async def test_it_costs_no_further_request(world: World) -> None:
    assert await requests_of(world, 0, max_hold=HOLD) == ["update_item"] * 2
    for seconds, max_hold in ((HOLD - 1, HOLD), (1000, 10_000)):
        plain = len(await requests_of(world, seconds))
        # A random part of the pauses decides on one or two of about fifty heartbeats.
        assert len(await requests_of(world, seconds, max_hold=max_hold)) <= plain + 3


async def test_the_caller_may_ask_how_long_it_may_hold(world: World) -> None:
    lock, _ = await acquire_told(world)
    await world.sleep(100)
    assert lock.hold_remaining == pytest.approx(HOLD - 100)
    assert (await done(world.locks.acquire("b"))).hold_remaining == math.inf


async def test_the_shortest_length_is_taken_and_one_beyond_all_time(world: World) -> None:
    lock = await done(world.locks.acquire("a", max_hold=timedelta(seconds=40)))
    assert lock.hold_remaining == 40
    await done(world.locks.acquire("b", lease=15, max_hold=10))
    endless = await done(world.locks.acquire("c", max_hold=1e308))
    await world.sleep(600)
    endless.check()


async def test_an_inner_block_is_ended_by_the_max_hold_of_the_outer_one(world: World) -> None:
    async def work() -> None:
        await world.sleep(HOLD - 100)
        async with inside(world.locks.hold("a", reentrant=True)) as inner:
            left.append(inner.hold_remaining)
            await world.sleep(100)
        left.append(0)

    left: list[float] = []
    with pytest.raises(LockLost, match=OVER):
        async with inside(world.locks.hold("a", max_hold=HOLD)):
            await work()
    assert left == [pytest.approx(100)]


async def test_each_of_several_locks_ends_with_its_own_max_hold(world: World) -> None:
    async def work() -> None:
        await world.sleep(HOLD - 1)
        assert await is_taken(world)
        await world.sleep(1)
        assert not await is_taken(world)

    with pytest.raises(LockLost, match=OVER):
        async with inside(world.locks.hold_all(["b", "a"], max_hold=HOLD)):
            await work()


async def test_a_leader_is_told_in_time_and_leads_again_behind_who_waits(world: World) -> None:
    terms: list[int] = []

    async def work(_lock: Lock, stop: threading.Event) -> None:
        began = world.now()
        if len(terms) < 3:
            await world.told(stop, 3600)
            terms.append(round(world.now() - began))

    await world.lead(work, max_hold=HOLD)
    assert terms == [HOLD - SAFE] * 3
