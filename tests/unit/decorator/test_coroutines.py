"""`@locked` around coroutine functions."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from fairlock import (
    AsyncLock,
    AsyncLockClient,
    InvalidRequest,
    LockClient,
    LockWaitTimeout,
    locked,
)
from fairlock.decorator import default_clients
from fairlock.decorator.locked_call import Call
from fairlock.testing.fake_async_client import LoopClock
from tests.unit.aio.doubles import AsyncTable, in_virtual_time


def client_over(table: AsyncTable, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
    return AsyncLockClient("locks", client=table, clock=LoopClock(), **settings)


@in_virtual_time
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


@in_virtual_time
async def test_skip_and_raise_do_not_call_the_function() -> None:
    ran: list[str] = []

    async def work() -> str:
        ran.append("work")
        return "done"

    async with client_over(AsyncTable()) as locks:
        skipping = locked("a", if_taken="skip", otherwise=7, client=locks)(work)
        raising = locked("a", if_taken="raise", client=locks)(work)
        async with locks.hold("a"):
            assert await skipping() == 7
            with pytest.raises(LockWaitTimeout):
                await raising()
        assert ran == []
        assert (await skipping(), await raising()) == ("done", "done")


@in_virtual_time
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


class Invocation:
    """What the Lambda runtime hands to a handler of 300 s beside the event."""

    def get_remaining_time_in_millis(self) -> int:
        return round((300 - LoopClock().monotonic()) * 1000)


@pytest.mark.parametrize("shortens", [True, False])
@in_virtual_time
async def test_a_lease_that_was_waited_for_ends_with_the_invocation_too(
    monkeypatch: pytest.MonkeyPatch, *, shortens: bool
) -> None:
    """The control is one that no one shortens."""
    if not shortens:
        monkeypatch.setattr(Call, "shorter_lease", lambda _self, _lease: None)

    async def work(_event: object, _context: object, *, lock: AsyncLock | None = None) -> float:
        assert lock is not None
        return lock.lease

    async with client_over(AsyncTable()) as locks:
        first = await locks.acquire("a")
        call = asyncio.create_task(locked("a", max_wait=290, client=locks)(work)({}, Invocation()))
        await asyncio.sleep(250)
        await first.release()
        assert (await call <= 51 / 0.98 + 0.001) is shortens


@in_virtual_time
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
