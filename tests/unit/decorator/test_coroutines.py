"""`@locked` around coroutine functions: tasks, and the clients of an event loop."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from fairlock import AsyncLock, AsyncLockClient, InvalidRequest, LockClient, locked
from fairlock.decorator import default_clients
from fairlock.testing.fake_async_client import LoopClock
from tests.unit.client.doubles import AsyncTable


def client_over(table: AsyncTable, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
    return AsyncLockClient("locks", client=table, clock=LoopClock(), **settings)


async def test_calls_run_one_at_a_time_and_without_the_lock_at_once() -> None:
    inside: list[int] = []

    async def work(number: int, *, lock: AsyncLock | None = None) -> int:
        inside.append(number)
        assert inside == [number] or lock is None
        await asyncio.sleep(1)
        together = len(inside)
        inside.remove(number)
        return together

    async with client_over(AsyncTable()) as locks:
        alone = locked("a", client=locks)(work)
        assert [*await asyncio.gather(*(alone(n) for n in range(4)))] == [1, 1, 1, 1]
    assert max(await asyncio.gather(*(work(n) for n in range(4)))) == 4


async def test_a_call_that_is_cancelled_releases() -> None:
    table = AsyncTable()
    async with client_over(table) as locks:

        @locked("a", client=locks)
        async def work() -> None:
            await asyncio.sleep(60)

        call = asyncio.create_task(work())
        await asyncio.sleep(1)
        assert table.state("a").held == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert table.state("a").held == 0


async def test_a_client_of_the_wrong_kind_is_refused(locks: LockClient) -> None:
    async def work() -> None: ...

    def plain() -> None: ...

    with pytest.raises(InvalidRequest, match="must be an AsyncLockClient"):
        await locked("a", client=locks)(work)()
    async with client_over(AsyncTable()) as async_locks:
        with pytest.raises(InvalidRequest, match="must be a LockClient"):
            locked("a", client=async_locks)(plain)()


def test_clients_made_by_themselves_are_closed_with_their_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[AsyncLockClient] = []

    def make(name: str, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
        client = AsyncLockClient(name, client=AsyncTable(), **settings)
        made.append(client)
        return client

    @locked("a")
    async def work() -> bool:
        return made[-1]._closed  # noqa: SLF001 - the question

    async def twice() -> list[bool]:
        return [await work(), await work()]

    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setattr("fairlock.aio.AsyncLockClient", make)
    gc.collect()  # What earlier tests have left would warn in this one.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (1, 2):
            assert asyncio.run(twice()) == [False, False]
            assert [client._closed for client in made] == [True] * number  # noqa: SLF001 - same
        gc.collect()
    assert len(default_clients._loops) == 0  # noqa: SLF001 - nothing of them is left
