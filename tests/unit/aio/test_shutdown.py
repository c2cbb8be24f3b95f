"""The end of a program: tasks are cancelled and the client is closed, all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlock import AsyncLockClient
from fairlock.aio import AsyncLock
from fairlock.testing import run_in_virtual_time
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import LATENCY_SECONDS, AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop

MOMENTS = [n * LATENCY_SECONDS / 4 for n in range(20)]


async def cancel(waiter: asyncio.Task[AsyncLock], _locks: AsyncLockClient) -> None:
    waiter.cancel()


async def close(_waiter: asyncio.Task[AsyncLock], locks: AsyncLockClient) -> None:
    await locks.close()


Stop = Callable[[asyncio.Task[AsyncLock], AsyncLockClient], Coroutine[Any, Any, None]]
PAIRS: list[tuple[Stop, Stop]] = [(cancel, close), (close, cancel)]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("apart", MOMENTS)
@in_virtual_time
async def test_a_waiter_that_is_stopped_in_two_ways_leaves_the_queue(
    one: Stop, other: Stop, apart: float, make_client: MakeClient, table: AsyncTable
) -> None:
    first = make_client("first")
    await first.acquire("a")
    locks = make_client("second")
    waiter = asyncio.create_task(locks.acquire("a", max_wait=600))
    await asyncio.sleep(1)
    stopping = asyncio.create_task(one(waiter, locks))
    await asyncio.sleep(apart)
    await other(waiter, locks)
    await asyncio.gather(stopping, waiter, return_exceptions=True)
    await asyncio.sleep(1)
    assert table.traces("a") == ["first"]
    await first.close()
    await locks.close()


@in_virtual_time
async def test_the_callbacks_of_two_locks_may_both_close_the_client(
    make_client: MakeClient, table: AsyncTable
) -> None:
    locks = make_client()
    closed: list[str] = []

    async def close(lock: AsyncLock, _reason: str) -> None:
        await asyncio.sleep(20)  # Until both locks are lost.
        await locks.close()
        closed.append(lock.name)

    for name in ("a", "b"):
        await locks.acquire(name, on_lost=close)
    table.memory.items.clear()
    await asyncio.sleep(60)
    assert sorted(closed) == ["a", "b"]


async def seconds_to_close_beside_a_busy_callback(locks: AsyncLockClient, table: AsyncTable) -> int:
    """The callback waits for the end of the task that closes: at most an hour."""
    begun = asyncio.Event()

    async def stop_the_work(_lock: AsyncLock, _reason: str) -> None:
        begun.set()
        async with asyncio.timeout(3600):
            await working

    async def work() -> None:
        await begun.wait()
        await locks.close()

    working = asyncio.create_task(work())
    await locks.acquire("a", on_lost=stop_the_work)
    table.memory.items.clear()
    await begun.wait()
    began = virtual_loop().time()
    await asyncio.wait([working])
    return round(virtual_loop().time() - began)


@in_virtual_time
async def test_a_callback_that_waits_for_the_end_of_the_client_does_not_prevent_it(
    make_client: MakeClient, table: AsyncTable, caplog: pytest.LogCaptureFixture
) -> None:
    assert await seconds_to_close_beside_a_busy_callback(make_client(), table) == 10
    assert "is still busy: the client does not wait for it any longer" in caplog.text


@in_virtual_time
async def test_without_a_bound_both_would_wait_for_each_other(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.tasks.CLOSE_SECONDS", None)
    assert await seconds_to_close_beside_a_busy_callback(make_client(), table) == 3600


@in_virtual_time
async def test_the_loss_of_a_lock_that_a_closed_client_left_to_its_lease_is_noticed(
    make_client: MakeClient,
) -> None:
    locks = make_client()
    lock = await locks.acquire("a")
    waiter = asyncio.create_task(lock.lost.wait())
    await locks.close()
    async with asyncio.timeout(31):
        assert await waiter


@pytest.mark.parametrize("late", MOMENTS)
@in_virtual_time
async def test_a_waiter_that_is_cancelled_while_it_gives_up_leaves_the_queue(
    late: float, make_client: MakeClient, table: AsyncTable
) -> None:
    """As by a timeout around `acquire` that is as long as its wait."""
    async with make_client("first") as first, make_client("second") as locks, first.hold("a"):
        waiter = asyncio.create_task(locks.acquire("a", max_wait=5))
        await asyncio.sleep(5 + late)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await asyncio.sleep(1)
        assert table.traces("a") == ["first"]


def test_a_release_that_begins_at_the_end_of_the_program_is_sent(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async def work(locks: AsyncLockClient, stop: asyncio.Event) -> None:
        async with locks.hold("a"):
            await stop.wait()

    async def main() -> asyncio.Task[None]:
        stop = asyncio.Event()
        worker = asyncio.create_task(work(make_client(), stop))
        await asyncio.sleep(1)
        stop.set()  # The worker leaves its block as the loop cancels all tasks.
        return worker

    run_in_virtual_time(main())
    assert table.traces("a") == []
