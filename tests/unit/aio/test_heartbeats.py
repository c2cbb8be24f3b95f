"""Heartbeats in the event loop, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from contextlib import nullcontext
from typing import Any

import pytest

from fairlock import AsyncLock, LockLost
from tests.support.faults import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable, Request
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop


@pytest.mark.parametrize(("every", "held"), [(None, True), (math.inf, False)])
@in_virtual_time
async def test_a_lock_is_held_for_as_long_as_it_is_renewed(
    every: float | None,
    held: bool,  # noqa: FBT001 - a parameter of the test
    make_client: MakeClient,
) -> None:
    async with make_client(heartbeat_every=every, safe_period=1) as locks:
        lock = await locks.acquire("a")
        await asyncio.sleep(300)
        assert lock.lost.is_set() is not held
        await lock.release()


@in_virtual_time
async def test_it_is_renewed_every_third_of_its_lease(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks, locks.hold("a"):
        await asyncio.sleep(300)
        assert 30 <= len(table.log) - 1 <= 35


@in_virtual_time
async def test_a_lost_reply_is_no_lost_lock(make_client: MakeClient, table: AsyncTable) -> None:
    async with make_client() as locks, locks.hold("a") as lock:
        table.loses_replies = True
        await asyncio.sleep(25)
        table.loses_replies = False
        await asyncio.sleep(300)
        lock.check()


@in_virtual_time
async def test_an_outage_longer_than_the_safe_period_is_danger_and_no_loss(
    make_client: MakeClient, table: AsyncTable
) -> None:
    told: list[str] = []

    async def in_danger(lock: AsyncLock, reason: str) -> None:
        await asyncio.sleep(0)
        told.append(f"{lock.name} is in danger: {reason[:21]}")

    async with (
        make_client() as locks,
        locks.hold("a", on_danger=in_danger, on_lost=lambda *_: told.append("lost")) as lock,
    ):
        table.outage = lost_reply()
        await asyncio.sleep(25)
        table.outage = None
        await asyncio.sleep(300)
        lock.check()
    assert told == ["a is in danger: its heartbeats fail: "]


@in_virtual_time
async def test_an_outage_longer_than_the_lease_is_a_loss_told_once(
    make_client: MakeClient, table: AsyncTable
) -> None:
    told: list[tuple[str, float]] = []

    async def is_lost(lock: AsyncLock, _reason: str) -> None:
        told.append((lock.name, virtual_loop().time()))

    async with make_client() as locks:
        lock = await locks.acquire("a", on_lost=is_lost)
        table.outage = lost_reply()
        began = virtual_loop().time()
        assert await lock.lost.wait() is True
        assert virtual_loop().time() - began < 30
        table.outage = None
        await asyncio.sleep(100)
        with pytest.raises(LockLost, match="its lease is over"):
            await lock.heartbeat()
        assert [name for name, _ in told] == ["a"]
        assert await lock.release() is False
    assert [name for name, _ in told] == ["a"]


@in_virtual_time
async def test_a_lock_that_someone_else_has_is_lost_at_the_next_heartbeat(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        lock = await locks.acquire("a")
        table.memory.items.clear()
        await asyncio.sleep(11)
        assert lock.lost.is_set()
        with pytest.raises(LockLost, match="another owner has it, or it was freed by force"):
            lock.check()


@in_virtual_time
async def test_what_a_callback_raises_is_logged(
    make_client: MakeClient, table: AsyncTable, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_lock: AsyncLock, _reason: str) -> None:
        raise ZeroDivisionError

    async with make_client() as locks:
        await locks.acquire("a", on_lost=fail)
        table.memory.items.clear()
        await asyncio.sleep(11)
    assert "on_lost of lock 'a' failed" in caplog.text


@in_virtual_time
async def test_a_callback_may_close_the_client(make_client: MakeClient, table: AsyncTable) -> None:
    locks = make_client()
    closed = asyncio.Event()

    async def close(_lock: AsyncLock, _reason: str) -> None:
        await locks.close()
        closed.set()

    await locks.acquire("a", on_lost=close)
    table.memory.items.clear()
    async with asyncio.timeout(11):
        await closed.wait()


@in_virtual_time
async def test_who_asks_after_the_loop_was_blocked_is_told_before_any_heartbeat(
    make_client: MakeClient,
) -> None:
    """A frozen process is the same: the first to run is not the heartbeat."""
    async with make_client() as locks:

        async def work() -> None:
            async with locks.hold("a") as lock:
                await asyncio.sleep(5)
                virtual_loop().block(31)
                by_heartbeats_alone = asyncio.Event.is_set(lock.lost)
                assert (lock.lost.is_set(), by_heartbeats_alone) == (True, False)
                assert lock.remaining == 0

        with pytest.raises(LockLost, match="its lease is over"):
            await work()


@in_virtual_time
async def test_a_loss_that_another_thread_finds_out_is_told_in_the_loop(
    make_client: MakeClient,
) -> None:
    told: list[threading.Thread] = []
    async with make_client() as locks:
        lock = await locks.acquire("a", on_lost=lambda *_: told.append(threading.current_thread()))
        virtual_loop().block(31)
        clock = virtual_loop().time()
        lock._handle.lease._clock.monotonic = lambda: clock  # type: ignore[method-assign]  # noqa: SLF001 - off the loop
        finder = threading.Thread(target=lock.lost.is_set)
        finder.start()
        finder.join(30)
        assert told == []
        await asyncio.sleep(0.1)
        assert told == [threading.current_thread()]


def after(table: AsyncTable, moment: float) -> list[Request]:
    return [request for request in table.log if request.arrived > moment]


@in_virtual_time
async def test_after_the_release_no_heartbeat_is_sent(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        lock = await locks.acquire("a")
        await asyncio.sleep(25)
        await lock.release()
        ended = virtual_loop().time()
        await asyncio.sleep(300)
    assert after(table, ended) == []


async def release_during_a_heartbeat(locks: Any, table: AsyncTable) -> float:  # noqa: ANN401 - a client
    """Returns by how much the two overlapped: above 0 they were under way at the same time."""
    lock = await locks.acquire("a")
    table.ways = [1.0]
    beat = asyncio.create_task(lock.heartbeat())
    await asyncio.sleep(0.1)
    await lock.release()
    await asyncio.gather(beat, return_exceptions=True)
    *_, first, second = sorted(table.log, key=lambda request: request.sent)
    return first.arrived - second.sent


@in_virtual_time
async def test_a_release_waits_for_the_heartbeat_that_is_on_its_way(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        assert await release_during_a_heartbeat(locks, table) < 0


@in_virtual_time
async def test_without_that_the_heartbeat_would_land_after_the_release(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.async_lock.BridgedMutex", nullcontext)
    async with make_client() as locks:
        assert await release_during_a_heartbeat(locks, table) > 0


@in_virtual_time
async def test_heartbeats_survive_a_defect_for_as_long_as_the_lease(
    make_client: MakeClient, table: AsyncTable, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_client() as locks, locks.hold("a") as lock:
        table.outage = RuntimeError("no permission, say")
        await asyncio.sleep(20)
        table.outage = None
        await asyncio.sleep(100)
        lock.check()
    assert "lock 'a': heartbeat failed; it is tried again" in caplog.text


@in_virtual_time
async def test_one_task_plans_for_all_locks_and_none_is_left_after_the_end(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "asyncio")
    before = asyncio.all_tasks()
    async with make_client() as locks:
        held = [await locks.acquire(f"lock-{n}") for n in range(100)]
        await asyncio.sleep(1)
        assert len(asyncio.all_tasks() - before) == 1
        for lock in held:
            await lock.release()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        await locks.acquire("again")
        await asyncio.sleep(100)
    assert asyncio.all_tasks() == before
    assert caplog.text == ""
