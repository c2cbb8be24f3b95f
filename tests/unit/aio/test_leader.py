"""`AsyncLockClient.lead`: the work is a task, which can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlock import AsyncLock, InvalidRequest
from fairlock.testing import FakeAsyncLockClient, FakeTable, run_in_virtual_time

LEASE = 60


def lead_async(main: Callable[[FakeAsyncLockClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with FakeAsyncLockClient(lease=LEASE) as locks:
            await main(locks)

    run_in_virtual_time(run())


def test_a_task_that_goes_on_after_its_lease_is_cancelled_and_called_again() -> None:
    left: list[float] = []

    async def main(locks: FakeAsyncLockClient) -> None:
        async def work(lock: AsyncLock, stop: asyncio.Event) -> str:
            if left:
                return "done"
            locks.table.is_down = True
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                left.append(lock.remaining)
                assert stop.is_set()
                locks.table.is_down = False
                raise
            return "not told"

        assert await locks.lead("exporter", work) == "done"
        assert locks.clock.monotonic() < 2 * LEASE + 10

    lead_async(main)
    assert left == [0]


def test_a_leader_whose_task_is_cancelled_releases() -> None:
    async def main(locks: FakeAsyncLockClient) -> None:
        leads = asyncio.Event()

        async def work(_lock: AsyncLock, stop: asyncio.Event) -> None:
            leads.set()
            await stop.wait()

        task = asyncio.create_task(locks.lead("exporter", work))
        await leads.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await locks.another().try_acquire("exporter") is not None

    lead_async(main)


def test_a_timeout_of_the_work_itself_is_its_own_error() -> None:
    async def main(locks: FakeAsyncLockClient) -> None:
        async def work(_lock: AsyncLock, _stop: asyncio.Event) -> None:
            raise TimeoutError("of a vendor")

        with pytest.raises(TimeoutError, match="of a vendor"):
            await locks.lead("exporter", work)

    lead_async(main)


def test_a_function_that_is_no_coroutine_function_is_refused_before_anything_is_sent() -> None:
    async def main(locks: FakeAsyncLockClient) -> None:
        work: Any = lambda _lock, _stop: None  # noqa: E731 - the very mistake
        with pytest.raises(InvalidRequest, match=r"a coroutine function; LockClient\.lead"):
            await locks.lead("exporter", work)
        assert locks.table.requests == []

    lead_async(main)


def test_the_outage_that_ends_a_term_does_not_end_the_leading_of_a_task() -> None:
    terms: list[int] = []

    async def work(lock: AsyncLock, stop: asyncio.Event) -> None:
        terms.append(lock.fencing_token)
        if len(terms) == 1:
            table.is_down = True
            asyncio.get_running_loop().call_later(300, answer_again)
            await stop.wait()

    def answer_again() -> None:
        table.is_down = False

    async def run() -> None:
        async with FakeAsyncLockClient(table=table, best_effort_release=False) as locks:
            await locks.lead("exporter", work, lease=LEASE)

    table = FakeTable()
    run_in_virtual_time(run())
    assert len(terms) == 2
