"""`only_newest` of both clients: an older version is told that it is superseded."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fairlock import InvalidRequest, LockEvent, LockEventKind, LockWaitTimeout, Superseded
from fairlock.wire.rules import HIGHEST_VERSION
from tests.contracts.client.drivers import World, done, inside, of_both_clients


@of_both_clients
async def test_a_lower_version_is_superseded_at_once_and_holds_nothing(world: World) -> None:
    lock = await done(world.another().acquire("a", only_newest=7))
    await done(lock.release())
    world.table.requests.clear()
    with pytest.raises(Superseded, match="version 6 is superseded, 7 was granted"):
        await done(world.another().acquire("a", only_newest=6))
    assert world.table.requests == ["update_item"]
    assert await done(world.another().acquire("a", only_newest=7))


@of_both_clients
async def test_a_version_costs_one_request_like_any_lock(world: World) -> None:
    lock = await done(world.another().acquire("a", only_newest=1))
    await done(lock.release())
    assert world.table.requests == ["update_item"] * 2


@of_both_clients
async def test_a_call_that_does_not_wait_tells_busy_from_superseded(world: World) -> None:
    held = await done(world.another().acquire("a", only_newest=7))
    with pytest.raises(LockWaitTimeout):
        await done(world.another().acquire("a", only_newest=8, max_wait=0))
    with pytest.raises(Superseded):
        await done(world.another().acquire("a", only_newest=6, max_wait=0))
    await done(held.release())


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", None, HIGHEST_VERSION + 1, math.nan])
@of_both_clients
async def test_a_version_that_is_none_is_refused_before_any_request(
    world: World,
    wrong: Any,  # noqa: ANN401 - whatever is wrong
) -> None:
    with pytest.raises(InvalidRequest, match=r"only_newest: must be true, or the version"):
        await done(world.another().acquire("a", only_newest=wrong))
    assert world.table.requests == []


@of_both_clients
async def test_a_reader_has_no_version(world: World) -> None:
    with pytest.raises(InvalidRequest, match="only_newest: must be left out with shared"):
        await done(world.another().acquire("a", only_newest=True, shared=True))
    assert world.table.requests == []


@of_both_clients
async def test_the_hook_is_told(world: World) -> None:
    told: list[LockEvent] = []
    client = world.another(on_event=told.append)
    lock = await done(client.acquire("a", only_newest=2))
    await done(lock.release())
    with pytest.raises(Superseded):
        await done(client.acquire("a", only_newest=1))
    await done(client.close())
    assert [event.kind for event in told][-1] is LockEventKind.SUPERSEDED


@of_both_clients
async def test_describe_tells_the_newest_and_the_versions_that_wait(world: World) -> None:
    held = await done(world.another().acquire("a", only_newest=7))
    with pytest.raises(LockWaitTimeout):
        await done(world.another().acquire("a", only_newest=8, max_wait=1))
    found = await done(world.another().describe("a"))
    assert found is not None
    assert found.newest == 7
    await done(held.release())


@pytest.mark.parametrize(("outer", "other"), [(4, 5), (False, 5), (True, 1), (False, 0)])
@of_both_clients
async def test_a_block_inside_a_block_has_no_other_version_than_that(
    world: World, outer: int, other: int
) -> None:
    """Its work would count as that of a version that was never granted."""
    locks = world.another()
    async with inside(locks.hold("a", only_newest=outer)) as lock:
        world.table.requests.clear()
        with pytest.raises(InvalidRequest, match=r"^only_newest: must be left out, or be that"):
            async with inside(locks.hold("a", only_newest=other, reentrant=True)):
                pass
        async with inside(locks.hold("a", only_newest=outer, reentrant=True)) as same:
            assert same is lock
        assert world.table.requests == []
