"""What both clients tell of a lock, and their hook: granted, refused, superseded, unknown, over."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from fairlock import (
    ClientUnusable,
    InvalidRequest,
    LockLost,
    LockStoreUnavailable,
    LockWaitTimeout,
    Superseded,
)
from fairlock.testing.manual_clock import START_MS
from tests.contracts.client.drivers import Tasks, World, done, inside
from tests.support.faulty_table import WRITES, down, unknown_outcomes
from tests.unit.client.doubles import Hook


async def test_a_lock_tells_what_was_granted_and_what_a_heartbeat_changed(world: World) -> None:
    block = world.client().hold("a", lease=20, data={"job": 7}, owner_name="anna's report")
    async with inside(block) as lock:
        assert lock.fencing_token == START_MS * 1000 + 1
        assert (lock.name, lock.owner_name, lock.data) == ("a", "anna's report", {"job": 7})
        assert lock.owner_id not in repr(lock)
        await world.sleep(5)
        assert lock.remaining >= 20 * 0.98 - 5.1
        assert not lock.lost.is_set()
        lock.check()
        await done(lock.heartbeat(lease=40, data={"job": 8}))
        assert (lock.lease, lock.data) == (40, {"job": 8})
        assert lock.remaining == pytest.approx(40 * 0.98, abs=0.1)
        [holder] = world.table.state("a").holders
        assert (holder.data, holder.lease_ms) == ('{"job":8}', 40_000)


async def test_each_call_is_one_request_and_a_released_lock_is_no_lost_one(world: World) -> None:
    lock = await done(world.client().acquire("a"))
    await done(lock.heartbeat())
    assert [await done(lock.release()), await done(lock.release())] == [True, True]
    assert world.table.requests == ["update_item"] * 3
    assert (lock.remaining, lock.lost.is_set()) == (0, False)
    with pytest.raises(LockLost, match="released"):
        lock.check()
    with pytest.raises(LockLost, match="released"):
        await done(lock.heartbeat())


async def test_a_lock_that_others_hold_is_refused_with_one_request(world: World) -> None:
    async with inside(world.client("anna").hold("a")):
        ben = world.client("ben")
        world.table.requests.clear()
        assert await done(ben.try_acquire("a")) is None
        assert world.table.requests == ["update_item"]
        with pytest.raises(LockWaitTimeout, match=r"^lock .a.: held by anna since 2"):
            await done(ben.acquire("a", max_wait=0))


async def test_a_waiter_only_reads_except_as_it_joins_and_every_two_minutes(world: World) -> None:
    lock = await done(world.client("anna", lease=600, heartbeat_every=math.inf).acquire("a"))
    world.table.requests.clear()
    world.at(300, lock.release)
    await done(world.client("ben").acquire("a", max_wait=400))
    requests = world.table.requests
    if requests[-1] == "update_item":
        requests.pop()  # The read of its own place found that gone, so it asked, and was granted.
    assert requests[:4] == ["update_item", "query", "transact_write_items", "update_item"]
    written = [name for name in requests[4:] if name in WRITES]
    # It keeps its place twice, and the holder hands over.
    assert written == ["update_item", "transact_write_items"] * 3
    assert len(requests) < 150  # A poll in 3.75 s; more often in the first 25 s.


@pytest.mark.parametrize("wait", [0.05, 1, 7.3, 90])
async def test_a_wait_is_exact_and_leaves_nothing_behind(world: World, wait: float) -> None:
    async with inside(world.client("anna").hold("a")):
        ben, began = world.client("ben"), world.now()
        told = f"not handed over within {wait:g} s; last held by anna"
        with pytest.raises(LockWaitTimeout, match=told):
            await done(ben.acquire("a", max_wait=wait))
        assert world.now() - began == pytest.approx(wait, abs=0.01)
        state = world.table.state("a")
        assert ([h.owner_name for h in state.holders], state.contended) == (["anna"], False)
        assert world.table.memory.waiters("a") == []


async def test_closing_the_client_ends_its_waits(world: World) -> None:
    async with inside(world.client("anna").hold("a")):
        ben, began = world.client("ben"), world.now()
        world.at(5, ben.close)
        with pytest.raises(ClientUnusable, match="LockClient is closed"):
            await done(ben.acquire("a", max_wait=60))
        assert world.now() - began == pytest.approx(5, abs=1)
        assert world.table.memory.waiters("a") == []


UNKNOWN = unknown_outcomes()


@pytest.mark.parametrize("what", UNKNOWN)
async def test_an_error_of_every_call_is_no_grant_and_no_refusal(world: World, what: str) -> None:
    locks = world.client()
    world.table.will(down(UNKNOWN[what]))
    with pytest.raises(LockStoreUnavailable):
        await done(locks.try_acquire("a"))
    with pytest.raises(LockStoreUnavailable):
        await done(locks.acquire("a", max_wait=10))
    world.table.will()
    state = world.table.state("a")
    assert (state.holders, state.contended) == ((), False)


# The hook for metrics is told of everything once.


async def test_a_grant_tells_the_wait_and_a_release_the_time_of_the_hold(world: World) -> None:
    told = Hook()
    locks = world.client(on_event=told)
    other = await done(world.another().acquire("a"))
    world.at(10, other.release)
    lock = await done(locks.acquire("a"))
    await world.sleep(40)
    assert await done(lock.release()) is True
    assert await done(lock.release()) is True
    granted, released = told.events
    assert (granted.kind, released.kind) == ("Granted", "Released")
    assert granted.waited_seconds is not None
    assert 10 <= granted.waited_seconds < 15
    assert released.held_seconds is not None
    assert 40 <= released.held_seconds < 60
    assert granted.fencing_token == released.fencing_token == lock.fencing_token
    assert granted.held_seconds is released.waited_seconds is None


async def test_each_way_in_which_a_lock_is_not_granted_is_an_event_of_its_own(world: World) -> None:
    told = Hook()
    locks = world.client(on_event=told)
    await done((await done(world.another().acquire("a", only_newest=2))).release())
    with pytest.raises(Superseded):
        await done(locks.acquire("a", only_newest=1))
    await done(world.another().acquire("a"))
    assert await done(locks.try_acquire("a")) is None
    with pytest.raises(LockWaitTimeout):
        await done(locks.acquire("a", max_wait=20))
    world.table.will(down())
    with pytest.raises(LockStoreUnavailable):
        await done(locks.acquire("b", max_wait=5))
    with pytest.raises(InvalidRequest):
        await done(locks.acquire(""))
    assert told.kinds() == ["Superseded", "Refused", "TimedOut", "Failed"]
    assert [event.reason for event in told.events][2:] == ["", "LockStoreUnavailable"]
    assert told.events[2].waited_seconds == 20


async def test_late_heartbeats_are_a_danger_and_then_a_loss_each_once(world: World) -> None:
    told = Hook()
    locks = world.client(on_event=told)
    lock = await done(locks.acquire("a"))
    world.table.will(down())
    await world.sleep(60)
    with pytest.raises(LockLost):
        lock.check()
    world.table.will()
    assert await done(lock.release()) is False
    assert told.kinds() == ["Granted", "InDanger", "Lost"]
    assert told.events[-1].held_seconds == pytest.approx(30, abs=1)


async def test_releases_by_a_transaction_and_by_the_end_of_a_client_are_told(world: World) -> None:
    told = Hook()
    locks = world.client(on_event=told)
    guard = await done(world.another().acquire("guard"))
    lock = await done(locks.acquire("a"))
    await done(lock.transact_write([guard.condition_check()], release=True))
    await done(locks.acquire("b"))
    assert told.kinds() == ["Granted", "Released", "Granted"]
    await done(locks.close(release=True))
    assert told.kinds() == ["Granted", "Released", "Granted", "Released"]


async def test_a_release_of_unknown_outcome_is_no_event_until_it_is_known(world: World) -> None:
    told = Hook()
    locks = world.client(on_event=told)
    lock = await done(locks.acquire("a"))
    world.table.will(down())
    with pytest.raises(LockStoreUnavailable):
        await done(lock.release())
    assert told.kinds() == ["Granted"]
    world.table.will()
    await done(lock.release())
    assert told.kinds() == ["Granted", "Released"]


# `only_newest` of both clients: an older version is told that it is superseded.


async def test_a_lower_version_is_superseded_at_once_and_holds_nothing(world: World) -> None:
    lock = await done(world.another().acquire("a", only_newest=7))
    await done(lock.release())
    world.table.requests.clear()
    with pytest.raises(Superseded, match="version 6 is superseded, 7 was granted"):
        await done(world.another().acquire("a", only_newest=6))
    assert world.table.requests == ["update_item"]
    assert await done(world.another().acquire("a", only_newest=7))


async def test_a_call_that_does_not_wait_tells_busy_from_superseded(world: World) -> None:
    await done(world.another().acquire("a", only_newest=7))
    with pytest.raises(LockWaitTimeout):
        await done(world.another().acquire("a", only_newest=8, max_wait=0))
    with pytest.raises(Superseded):
        await done(world.another().acquire("a", only_newest=6, max_wait=0))
    assert (await done(world.another().describe("a"))).newest == 7


@pytest.mark.parametrize("world", [Tasks], indirect=True)
@pytest.mark.parametrize("has_one_client", [True, False], ids=["of one client", "of each its own"])
async def test_of_many_deployments_the_newest_runs(world: World, *, has_one_client: bool) -> None:
    """In one client one of them reads, and the others learn it without a request."""
    ran: list[int] = []

    async def deploy(locks: Any, version: int) -> None:  # noqa: ANN401 - of either kind
        async with locks.hold("a", only_newest=version, max_wait=60):
            ran.append(version)

    holder, waiting = await world.locks.acquire("a", only_newest=1), list[asyncio.Task[None]]()
    for version in (4, 2, 9, 3):
        locks = world.locks if has_one_client else world.another()
        waiting.append(asyncio.create_task(deploy(locks, version)))
        await world.sleep(0.1)
    await holder.release()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    superseded = [error for error in ended if isinstance(error, Superseded)]
    assert ran == [9]
    assert [error.version for error in superseded] == [4, 2, 3]
    assert {(error.lock_name, error.newest) for error in superseded} == {("a", 9)}
    assert str(superseded[0]).endswith("is superseded, 9 was granted the lock")
    assert world.table.waiters("a") == []


@pytest.mark.parametrize(("outer", "other"), [(4, 5), (False, 5), (True, 1), (False, 0)])
async def test_an_inner_block_has_no_other_version(world: World, outer: int, other: int) -> None:
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


@pytest.mark.parametrize("skew", [-600, -0.3, 0.3, 600])
async def test_by_time_counts_the_time_of_aws_not_of_the_machine(world: World, skew: float) -> None:
    lock = await done(world.with_clock(skew).acquire("a", only_newest=True))
    assert world.table.requests[0] == "get_item"  # AWS's time
    await done(lock.release())
    newest = world.table.state("a").newest
    assert newest is not None
    assert abs(newest - world.clock.wall_ms()) <= 1_000
    await world.sleep(2)
    assert await done(world.another().acquire("a", only_newest=True))
