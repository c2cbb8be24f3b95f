"""`shared=True` of the clients: who is beside whom, and what a reader may not do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fairlock import InvalidRequest, LockClient
from fairlock.guarded import GuardedWrites
from fairlock.testing.fake_table import MemoryTable
from tests.contracts.client.drivers import WAYS, World, done, enter, inside
from tests.support import TABLE

PUT: Any = {"Put": {"TableName": TABLE, "Item": {"pk": {"S": "report"}, "sk": {"S": "7"}}}}
ALONE = r"^shared: must be False for guarded writes: others hold this lock as well"


async def test_readers_hold_together_and_a_writer_waits_for_all_of_them(world: World) -> None:
    first = await done(world.locks.acquire("a", shared=True))
    second = await done(world.another().acquire("a", shared=True))
    assert (first.shared, second.shared) == (True, True)
    assert await done(world.locks.try_acquire("a")) is None
    world.at(5, first.release)
    world.at(10, second.release)
    began = world.now()
    async with inside(world.locks.hold("a", max_wait=60)) as writer:
        assert not writer.shared
        assert world.now() - began >= 10
        assert await done(world.another().try_acquire("a", shared=True)) is None


async def test_a_reader_that_comes_while_a_writer_waits_does_not_overtake_it(world: World) -> None:
    reader, newcomer, told = world.locks, world.another(), list[Any]()

    async def come() -> None:
        told.append(await done(newcomer.try_acquire("a", shared=True)))

    holds = await done(reader.acquire("a", shared=True))
    world.at(3, come)
    world.at(6, holds.release)
    async with inside(world.another("writer").hold("a", max_wait=60)):
        assert told == [None]


UPGRADE = r"inside a `with` that shares it, and a shared lock cannot become exclusive; end that"
AGAIN = r"inside a `with` that shares it, and would wait behind a writer that waits for it; go on"


@pytest.mark.parametrize(("shared", "told"), [(False, UPGRADE), (True, AGAIN)])
async def test_a_wait_inside_a_shared_block_is_refused_at_once_and_nothing_is_sent(
    world: World, told: str, *, shared: bool
) -> None:
    async with inside(world.locks.hold("a", shared=True)):
        before = (world.now(), len(world.table.requests))
        for way in WAYS:
            with pytest.raises(InvalidRequest, match=told):
                await enter(world, way, shared=shared)
        assert (world.now(), len(world.table.requests)) == before


async def test_all_may_read_under_their_own_lock_and_a_reader_may_not_write(world: World) -> None:
    for shared in (False, True):
        async with (
            inside(world.locks.hold("a", shared=shared)) as outer,
            inside(world.locks.hold("a", shared=True, reentrant=True)) as inner,
        ):
            assert inner is outer
    async with inside(world.locks.hold("a", shared=True)):
        with pytest.raises(
            InvalidRequest, match=r"^shared: must be True here: the outer block shares"
        ):
            async with inside(world.locks.hold("a", reentrant=True)):
                pass


GUARDED: dict[str, Callable[[Any], object]] = {
    "transact_write": lambda lock: lock.transact_write([PUT]),
    "transact_write and release": lambda lock: lock.transact_write([PUT], release=True),
    "condition_check": lambda lock: lock.condition_check(),
    "fence_condition": lambda lock: lock.fence_condition(),
}


@pytest.mark.parametrize("way", GUARDED)
async def test_a_reader_makes_no_guarded_writes(world: World, way: str) -> None:
    async with inside(world.locks.hold("a", shared=True)) as lock:
        sent = len(world.table.requests)
        with pytest.raises(InvalidRequest, match=ALONE):
            await done(GUARDED[way](lock))
        assert len(world.table.requests) == sent
        lock.check()


@pytest.mark.parametrize("release", [False, True])
def test_what_a_reader_passes_on_makes_no_guarded_writes_either(*, release: bool) -> None:
    """Another function has its owner_id and its token, and no lock object that knows."""
    table: Any = MemoryTable()
    lock = LockClient(TABLE, client=table).acquire("a", shared=True)
    writes = GuardedWrites(
        table,
        table_name=TABLE,
        lock_name="a",
        owner_id=lock.owner_id,
        fencing_token=lock.fencing_token,
    )
    with pytest.raises(InvalidRequest, match=ALONE):
        writes.transact_write([PUT], release=release)
    assert "Item" not in table.get_item(TableName=TABLE, Key=PUT["Put"]["Item"])
    lock.release()


async def test_an_adopted_lock_is_shared_as_it_was_acquired(world: World) -> None:
    lock = await done(world.locks.acquire("a", shared=True))
    adopted = await done(world.another().adopt("a", lock.owner_id))
    assert adopted.shared
    with pytest.raises(InvalidRequest, match=ALONE):
        adopted.condition_check()


async def test_as_many_hold_as_the_limit_says_and_else_twenty_readers(world: World) -> None:
    for shared, limit, most in ((True, 1, 20), (True, 3, 3), (False, 1, 1), (False, 3, 3)):
        name = f"{shared} {limit}"
        others = [world.another() for _ in range(21)]
        taken = [
            await done(other.try_acquire(name, shared=shared, limit=limit)) for other in others
        ]
        assert len([lock for lock in taken if lock]) == most


@pytest.mark.parametrize("shared", [False, True])
async def test_behind_a_dead_holder_its_lease_is_waited_for(world: World, *, shared: bool) -> None:
    """A writer behind many readers as behind one; another reader makes no lease longer."""
    for number in range(19 if shared else 1):
        dead = world.another(f"dead {number}", heartbeat_every=math.inf)
        await done(dead.acquire("a", lease=30, shared=shared))
    began = world.now()
    await world.sleep(20)
    if shared:
        async with inside(world.locks.hold("a", shared=True)):
            await world.sleep(5)
    async with inside(world.another("next").hold("a", shared=not shared, max_wait=120, lease=30)):
        assert 30 < world.now() - began <= 35


async def test_a_reader_is_renewed_and_one_released_by_force_leaves_it(world: World) -> None:
    stays, goes = [await done(world.another().acquire("a", shared=True)) for _ in range(2)]
    await done(world.locks.force_release("a", fencing_token=goes.fencing_token, reason="it hangs"))
    await world.sleep(300)
    assert goes.lost.is_set()
    stays.check()
    assert await done(world.locks.try_acquire("a")) is None
