"""The end of a client: nothing goes on, and nobody waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from tests.aio.conftest import MakeClient
from tests.aio.doubles import AsyncTable, lost_reply
from tests.aio.virtual_time import in_virtual_time, virtual_loop


@in_virtual_time
async def test_closing_a_client_gives_back_its_locks_only_if_told(
    make_client: MakeClient, table: AsyncTable
) -> None:
    keeps, gives = make_client("keeps"), make_client("gives")
    await asyncio.gather(keeps.acquire("a"), gives.acquire("b"))
    await keeps.close()
    await gives.close(release=True)
    assert (table.traces("a"), table.traces("b")) == (["keeps"], [])
    begun = len(table.log)
    await asyncio.sleep(100)
    assert len(table.log) == begun


@in_virtual_time
async def test_a_release_at_close_that_fails_is_logged(
    make_client: MakeClient, table: AsyncTable, caplog: pytest.LogCaptureFixture
) -> None:
    locks = make_client()
    await locks.acquire("a")
    table.outage = lost_reply()
    await locks.close(release=True)
    assert "release at close failed; the lease ends it" in caplog.text


@in_virtual_time
async def test_closing_ends_waits_and_they_leave_the_queue(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("first") as others, others.hold("a"):
        locks = make_client("second")
        waiter = asyncio.create_task(locks.acquire("a", wait=600))
        await asyncio.sleep(20)
        began = virtual_loop().time()
        await locks.close()
        with pytest.raises(RuntimeError, match="this AsyncLockClient is closed"):
            await waiter
        assert virtual_loop().time() - began < 1
        assert table.traces("a") == ["first"]


@in_virtual_time
async def test_a_closed_client_acquires_nothing(make_client: MakeClient, table: AsyncTable) -> None:
    locks = make_client()
    await locks.close()
    await locks.close()
    with pytest.raises(RuntimeError, match="closed"):
        await locks.acquire("a")
    assert table.log == []


@in_virtual_time
async def test_a_lock_may_be_released_after_its_client_was_closed(
    make_client: MakeClient, table: AsyncTable
) -> None:
    locks = make_client()
    lock = await locks.acquire("a")
    await locks.close()
    assert lock.condition_check()["ConditionCheck"]["TableName"] == "locks"
    assert await lock.release() is True
    assert table.traces("a") == []
