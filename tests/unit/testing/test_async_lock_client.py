"""A fake asyncio client, in virtual time and in real time."""

from __future__ import annotations

import asyncio

import pytest

from leasehold import LockLost, LockWaitTimeout, locked
from leasehold.testing import (
    FakeAsyncLockClient,
    run_in_virtual_time,
    used_by_locked_functions,
)


def test_waits_and_heartbeats_take_the_time_of_the_event_loop_and_no_other() -> None:
    async def scene() -> None:
        async with FakeAsyncLockClient(lease=30) as locks:
            lock = await locks.acquire("a")
            with pytest.raises(LockWaitTimeout):
                await locks.another().acquire("a", wait=3600)
            assert asyncio.get_running_loop().time() == pytest.approx(3600, abs=1)
            lock.check()
            locks.clock.stall(31)
            with pytest.raises(LockLost):
                lock.check()

    run_in_virtual_time(scene())


def test_in_a_real_loop_a_stall_loses_the_lock_at_once() -> None:
    async def scene() -> None:
        async with FakeAsyncLockClient() as locks, locks.hold("a", lease=30) as lock:
            locks.clock.stall(29)
            lock.check()
            locks.clock.stall(2)
            lock.check()

    with pytest.raises(LockLost):
        asyncio.run(scene())


def test_tasks_that_wait_for_nothing_are_an_error_and_do_not_hang() -> None:
    async def scene() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        run_in_virtual_time(scene())


@locked("report", if_taken="skip", otherwise="skipped")
async def report() -> str:
    return "written"


def test_a_locked_coroutine_function_uses_the_table() -> None:
    async def scene() -> None:
        async with FakeAsyncLockClient() as locks:
            with used_by_locked_functions(locks):
                async with locks.hold("report"):
                    assert await report() == "skipped"
                assert await report() == "written"

    run_in_virtual_time(scene())
