"""What both clients tell of a lock: granted, refused, waited for in vain, wrong, unknown, over."""

from __future__ import annotations

import pytest

from fairlock import ClientUnusable, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.testing.manual_clock import START_MS
from tests.contracts.client.drivers import World, done, inside, of_both_clients
from tests.support.faulty_table import unknown_outcomes


@of_both_clients
async def test_acquire_heartbeat_and_release_are_one_request_each(world: World) -> None:
    lock = await done(world.client().acquire("orders/7"))
    await done(lock.heartbeat())
    assert await done(lock.release()) is True
    assert world.table.requests == ["update_item"] * 3


@of_both_clients
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


@of_both_clients
async def test_a_released_lock_is_not_held_and_not_lost(world: World) -> None:
    lock = await done(world.client().acquire("a"))
    assert [await done(lock.release()), await done(lock.release())] == [True, True]
    assert world.table.requests == ["update_item"] * 2
    assert (lock.remaining, lock.lost.is_set()) == (0, False)
    with pytest.raises(LockLost, match="released"):
        lock.check()
    with pytest.raises(LockLost, match="released"):
        await done(lock.heartbeat())


@of_both_clients
async def test_a_lock_that_others_hold_is_refused_with_one_request(world: World) -> None:
    async with inside(world.client("anna").hold("a")):
        ben = world.client("ben")
        world.table.requests.clear()
        assert await done(ben.try_acquire("a")) is None
        assert world.table.requests == ["update_item"]
        with pytest.raises(LockWaitTimeout, match=r"^lock .a.: held by anna since 2"):
            await done(ben.acquire("a", max_wait=0))


@pytest.mark.parametrize("wait", [0.05, 1, 7.3, 90])
@of_both_clients
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


@of_both_clients
async def test_closing_the_client_ends_its_waits(world: World) -> None:
    async with inside(world.client("anna").hold("a")):
        ben, began = world.client("ben"), world.now()
        world.at(5, ben.close)
        with pytest.raises(ClientUnusable, match="LockClient is closed"):
            await done(ben.acquire("a", max_wait=60))
        assert world.now() - began == pytest.approx(5, abs=1)
        assert world.table.memory.waiters("a") == []


@of_both_clients
async def test_a_semaphore_lets_as_many_in_as_it_has_permits(world: World) -> None:
    locks = world.client()
    got = [await done(locks.try_acquire("db", limit=3)) for _ in range(5)]
    assert [lock is not None for lock in got] == [True, True, True, False, False]


UNKNOWN = unknown_outcomes()


@pytest.mark.parametrize("what", UNKNOWN)
@of_both_clients
async def test_an_error_on_every_call_is_neither_a_grant_nor_a_refusal(
    world: World, what: str
) -> None:
    locks = world.client()
    world.table.defect = UNKNOWN[what]
    with pytest.raises(LockStoreUnavailable):
        await done(locks.try_acquire("a"))
    with pytest.raises(LockStoreUnavailable):
        await done(locks.acquire("a", max_wait=10))
    world.table.defect = None
    state = world.table.state("a")
    assert (state.holders, state.contended) == ((), False)
