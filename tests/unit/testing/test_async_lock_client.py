"""A fake asyncio client, in virtual time and in real time."""

from __future__ import annotations

import asyncio
import sys

import pytest

from fairlock import ClientUnusable, LockLost, LockWaitTimeout, locked
from fairlock.testing import (
    FakeAsyncLockClient,
    run_in_virtual_time,
    used_by_locked_functions,
)


def test_waits_and_heartbeats_take_the_time_of_the_event_loop_and_no_other() -> None:
    async def scene() -> None:
        async with FakeAsyncLockClient(lease=30) as locks:
            lock = await locks.acquire("a")
            with pytest.raises(LockWaitTimeout):
                await locks.another().acquire("a", max_wait=3600)
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


def test_a_handler_that_runs_a_loop_of_its_own_each_time_is_called_twice_with_one_table() -> None:
    locks = FakeAsyncLockClient()
    with used_by_locked_functions(locks):
        assert [asyncio.run(report()), asyncio.run(report())] == ["written", "written"]
    assert locks.table.requests.count("update_item") == 2 * 2


def test_with_one_client_for_both_loops_the_second_call_would_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks = FakeAsyncLockClient()

    async def one_client(**_kind: bool) -> FakeAsyncLockClient:
        return locks

    monkeypatch.setattr(
        sys.modules["fairlock.decorator.locked"], "default_async_client", one_client
    )
    assert asyncio.run(report()) == "written"
    with pytest.raises(ClientUnusable, match="another event loop"):
        asyncio.run(report())
