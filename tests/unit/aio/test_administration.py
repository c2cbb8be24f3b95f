"""describe, list, force_release and adopt of the asyncio client do what `LockClient`'s do."""

from __future__ import annotations

import asyncio

import pytest

from fairlock import (
    AsyncLockClient,
    HolderChanged,
    InvalidRequest,
    LockClient,
    LockLost,
    LockWaitTimeout,
)
from fairlock.errors import ClientUnusable
from tests.support import owner
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.test_surface import parameters_of
from tests.unit.aio.virtual_time import in_virtual_time

WHY = "stuck since 3 a.m."


@pytest.mark.parametrize(
    "name",
    ["describe", "list", "force_release", "release", "set_limit", "pause", "resume", "empty_queue"],
)
def test_a_method_takes_what_its_namesake_takes(name: str) -> None:
    assert parameters_of(getattr(AsyncLockClient, name)) == parameters_of(getattr(LockClient, name))


def test_adopt_takes_what_its_namesake_takes() -> None:
    names = [[p[0] for p in parameters_of(c.adopt)] for c in (AsyncLockClient, LockClient)]
    assert names[0] == names[1]


@in_virtual_time
async def test_locks_are_described_listed_and_released_by_force(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("anna") as anna, make_client("olga") as olga:
        table.memory.page_size = 1
        locks = [await anna.acquire(f"orders/{number}", data={"n": number}) for number in range(3)]
        assert [lock.name async for lock in olga.list("orders/")] == [lock.name for lock in locks]
        described = await olga.describe("orders/0")
        assert described is not None
        [holder] = described.holders
        assert (holder.owner_name, holder.data) == ("anna", {"n": 0})
        assert await olga.describe("other") is None
        await olga.force_release("orders/0", holder=holder, reason=WHY)
        with pytest.raises(HolderChanged):
            await olga.force_release("orders/1", holder=holder, reason=WHY)
        with pytest.raises(LockLost):
            await locks[0].heartbeat()
        assert table.state("orders/0").holders == ()
        assert await locks[0].release() is False


@in_virtual_time
async def test_a_lock_is_limited_paused_and_resumed(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("anna") as anna, make_client("olga") as olga:
        await olga.pause("orders/0", reason=WHY)
        with pytest.raises(LockWaitTimeout, match="paused by olga since") as refused:
            await anna.acquire("orders/0", max_wait=0)
        assert refused.value.ceiling is not None
        assert refused.value.ceiling.reason == WHY
        waiting = asyncio.create_task(anna.acquire("orders/0", max_wait=60))
        await asyncio.sleep(3)
        await olga.resume("orders/0")
        lock = await waiting
        await olga.set_limit("orders/0", 2, reason=WHY)
        assert table.state("orders/0").ceiling is not None
        assert await lock.release() is True
        with pytest.raises(
            InvalidRequest, match=r"^limit: must be at least 1; to let no one hold the lock"
        ):
            await olga.set_limit("orders/0", 0, reason=WHY)


@in_virtual_time
async def test_an_adopted_lock_is_renewed_and_released(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("anna", heartbeat_every=29, safe_period=0.1) as anna:
        granted = await anna.acquire("a", lease=30)
        async with make_client("ben") as ben:
            lock = await ben.adopt("a", granted.owner_id)
            assert lock.fencing_token == granted.fencing_token
            before = table.state("a").holders[0].revision
            while table.state("a").holders[0].revision < before + 3:
                await ben.describe("a")
            assert await lock.release() is True
            with pytest.raises(LockLost, match="not held by this owner_id"):
                await ben.adopt("a", granted.owner_id)
            with pytest.raises(LockLost):
                await ben.adopt("a", owner("nobody"))


@in_virtual_time
async def test_an_owner_id_is_enough_to_release_and_a_repeat_is_answered_again(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("anna") as anna, make_client("ben") as ben:
        lock = await anna.acquire("a")
        assert await ben.release("a", lock.owner_id) is True
        assert table.state("a").holders == ()
        assert await ben.release("a", lock.owner_id) is True
        assert await ben.release("a", owner("nobody")) is False


@in_virtual_time
async def test_bad_arguments_and_a_closed_client_are_refused_without_a_request(
    make_client: MakeClient, table: AsyncTable
) -> None:
    client = make_client("anna")
    with pytest.raises(InvalidRequest):
        client.list("\n")
    with pytest.raises(InvalidRequest):
        await client.force_release("a", fencing_token=0, reason=WHY)
    with pytest.raises(InvalidRequest):
        await client.adopt("a", "short")
    await client.close()
    with pytest.raises(ClientUnusable):
        client.list()
    with pytest.raises(ClientUnusable):
        await client.describe("a")
    assert table.names() == []


@in_virtual_time
async def test_a_queue_is_emptied_and_its_length_told(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("anna") as anna, make_client("olga") as olga:
        await anna.acquire("orders/0")
        waiting = asyncio.create_task(make_client("ben").acquire("orders/0", max_wait=60))
        await asyncio.sleep(1)
        assert await olga.empty_queue("orders/0") == 1
        assert table.memory.waiters("orders/0") == []
        with pytest.raises(InvalidRequest, match="name"):
            await olga.empty_queue("")
        waiting.cancel()
