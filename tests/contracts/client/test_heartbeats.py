"""Heartbeats of both clients: they outlast failures, tell danger and loss once, end with a release.

The lease is 30 s: a heartbeat every 10 s, danger 10 s before the end.
"""

from __future__ import annotations

import logging
import math
import re

import pytest

from fairlock import LockLost, LockStoreUnavailable
from tests.contracts.client.drivers import OWN, Told, World, done, inside
from tests.support import logged_here
from tests.support.faulty_table import down, mute, refusal


async def outage(world: World, seconds: float) -> None:
    world.table.will(down())
    await world.sleep(seconds)
    world.table.will()


async def test_a_lock_is_renewed_every_third_of_its_lease(world: World) -> None:
    async with inside(world.client().hold("a")):
        await world.sleep(3600)
        # The first half a period early at most, all others a tenth: 9.5 s on average.
        assert 360 <= world.table.state("a").holders[0].revision <= 400


async def test_a_lost_reply_is_no_lost_lock(world: World) -> None:
    told = Told(world)
    async with inside(world.client().hold("a", **told.callbacks())) as lock:
        world.table.will(mute())
        await world.sleep(12)
        world.table.will()
        assert world.table.state("a").holders[0].revision >= 2
        await world.sleep(600)
        lock.check()
    assert told.what == []


async def test_each_outage_beyond_the_safe_period_is_a_danger_and_no_loss(world: World) -> None:
    told = Told(world)
    async with inside(world.client().hold("a", **told.callbacks())) as lock:
        for _ in range(2):
            await done(lock.heartbeat())
            await outage(world, 25)
            await world.sleep(60)
        await world.sleep(3600)
        lock.check()
    assert told.what == ["danger"] * 2
    assert told.reasons[0].startswith("its heartbeats fail: ")


async def test_an_outage_longer_than_the_lease_is_a_loss_told_once(world: World) -> None:
    told = Told(world)
    lock = await done(world.client().acquire("a", **told.callbacks()))
    world.table.will(down())
    await world.sleep(OWN - 0.1)
    lock.check()
    await world.sleep(0.2)
    assert lock.lost.is_set()
    world.table.will()
    await world.sleep(600)
    for _ in range(2):
        with pytest.raises(LockLost, match="its lease is over"):
            lock.check()
        with pytest.raises(LockLost, match="its lease is over"):
            await done(lock.heartbeat())
    assert world.table.state("a").holders[0].revision == 1  # No one renewed what was given up.
    assert await done(lock.release()) is False
    assert told.what == ["danger", "lost"]


async def test_loss_and_danger_are_told_with_lock_and_reason(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(world)
    await done(world.client().acquire("a", **told.callbacks()))
    world.table.will(down(refusal("AccessDeniedException")))
    with caplog.at_level(logging.WARNING, "fairlock"):
        await world.sleep(31)
    assert told.what == ["danger", "lost"]
    assert re.match(r"its heartbeats fail: lock table '.*' .* no permission", told.reasons[0])
    assert told.reasons[1] == "its lease is over"
    in_danger = [line for line in logged_here(caplog) if "is in danger" in line]
    assert re.match(r"lock 'a' is in danger, \d+.\d s left: its heartbeats fail: ", in_danger[0])
    assert all("lock 'a'" in line for line in logged_here(caplog))


async def test_a_lock_that_another_has_is_lost_at_the_next_heartbeat(world: World) -> None:
    told = Told(world)
    lock = await done(world.client().acquire("a", **told.callbacks()))
    world.table.memory.items.clear()
    await world.sleep(11)
    assert lock.lost.is_set()
    assert told.what == ["lost"]
    with pytest.raises(LockLost, match="another owner has it, or it was freed by force"):
        await done(lock.heartbeat())


async def test_heartbeats_survive_a_defect_for_as_long_as_the_lease(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with inside(world.client().hold("a")) as lock:
        world.table.will(down(PermissionError("no permission, for now")))
        await world.sleep(25)
        world.table.will()
        await world.sleep(60)
        lock.check()
    assert "lock 'a': heartbeat failed; it is tried again until the lease is over" in caplog.text


@pytest.mark.usefixtures("broken_log")
async def test_heartbeats_go_on_though_the_log_raises(world: World) -> None:
    """Two locks come into danger together."""
    locks = world.client()
    held = [await done(locks.acquire(name)) for name in ("a", "b")]
    await outage(world, 22)
    await world.sleep(3600)
    assert [lock.remaining > 0 for lock in held] == [True, True]


async def test_what_a_callback_raises_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_lock: object, _reason: str) -> None:
        raise ZeroDivisionError("as the test wants it")

    await done(world.client().acquire("a", on_lost=fail))
    world.table.memory.items.clear()
    await world.sleep(11)
    assert "on_lost of lock 'a' failed" in caplog.text
    assert "as the test wants it" in caplog.text


async def test_after_the_release_no_heartbeat_is_sent(world: World) -> None:
    lock = await done(world.client().acquire("a"))
    await world.sleep(60)
    await done(lock.release())
    world.table.requests.clear()
    await world.sleep(600)
    assert world.table.requests == []


async def test_an_unknown_heartbeat_of_ones_own_counts_its_shorter_lease(world: World) -> None:
    """It may have been written."""
    lock = await done(world.client().acquire("a"))
    world.table.will(down(refusal("InternalServerError")))
    with pytest.raises(LockStoreUnavailable):
        await done(lock.heartbeat(lease=20))
    assert lock.remaining == pytest.approx(20 * 0.98, abs=0.1)
    world.table.will()
    await world.sleep(100)
    lock.check()


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("lease", [1, 5, 25])
async def test_one_that_is_unknown_and_asks_for_a_shorter_lease_is_made_up_for(
    lease: float, world: World, *, is_written: bool
) -> None:
    """The next one would be due only after the end of the lease that may have been written."""
    told = Told(world)
    async with inside(world.client().hold("a", lease=60, **told.callbacks())) as lock:
        world.table.will(mute() if is_written else down())
        with pytest.raises(LockStoreUnavailable):
            await done(lock.heartbeat(lease=lease))
        world.table.will()
        await world.sleep(300)
        lock.check()
    assert told.what in ([], ["danger"])


async def test_a_lock_without_heartbeats_gets_none_by_one_of_its_own(world: World) -> None:
    locks = world.client(heartbeat_every=math.inf)
    async with inside(locks.hold("a", lease=60)) as lock:
        await done(lock.heartbeat(lease=20))
        sent = len(world.table.requests)
        await world.sleep(15)
        lock.check()
        assert len(world.table.requests) == sent
