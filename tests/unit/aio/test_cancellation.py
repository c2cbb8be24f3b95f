"""A cancelled task leaves nothing behind, no lock and no place in a queue, whenever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from fairlock import AsyncLock, AsyncLockClient
from fairlock.client.acquisition import Acquisition
from fairlock.protocol.model import Grant
from tests.support.faulty_table import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.client.doubles import LATENCY_SECONDS, AsyncTable, in_virtual_time, virtual_loop

MOMENTS = [n * LATENCY_SECONDS / 4 for n in range(24)]


async def abandon(operation: Awaitable[object]) -> object:
    """The protection switched off: a request whose task is cancelled is left to itself."""
    return await operation


async def undo_nothing(_acquisition: asyncio.Task[Grant | None], _waiting: Acquisition) -> None:
    """The protection switched off: what was granted in the moment of the cancellation stays."""


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        lock = await task
        assert lock is not None


async def acquire_and_cancel(
    locks: AsyncLockClient, table: AsyncTable, *, after: float, hold_first: float = 0
) -> list[str]:
    """Cancels an acquisition after so long; returns the traces that it has left."""
    first = await locks.acquire("a", owner_name="first") if hold_first else None
    if first is not None:
        virtual_loop().call_later(hold_first, lambda: keep(first.release()))
    task = asyncio.create_task(locks.acquire("a", owner_name="second"))
    await asyncio.sleep(after)
    task.cancel()
    [outcome] = await asyncio.gather(task, return_exceptions=True)
    if not isinstance(outcome, BaseException):
        await outcome.release()
    await asyncio.sleep(hold_first + 1)
    return table.traces("a")


_kept: set[asyncio.Task[object]] = set()


def keep(work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    _kept.add(task)
    task.add_done_callback(_kept.discard)


@pytest.mark.parametrize("after", MOMENTS)
@in_virtual_time
async def test_cancelled_at_any_moment_of_an_acquire_nothing_is_held(
    after: float, make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        assert await acquire_and_cancel(locks, table, after=after) == []


@pytest.mark.parametrize("after", [0.5 + moment for moment in MOMENTS])
@in_virtual_time
async def test_cancelled_while_the_lock_is_handed_over_nothing_is_held_or_waited_for(
    after: float, make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        assert await acquire_and_cancel(locks, table, after=after, hold_first=0.5) == []


@in_virtual_time
async def test_a_waiter_that_is_cancelled_leaves_the_queue_at_once(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks, locks.hold("a", owner_name="first"):
        waiter = asyncio.create_task(locks.acquire("a", owner_name="second"))
        await asyncio.sleep(20)
        assert table.traces("a") == ["first", "second"]
        began = virtual_loop().time()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert table.traces("a") == ["first"]
        assert virtual_loop().time() - began < 10 * LATENCY_SECONDS


@in_virtual_time
async def test_without_its_cleanup_a_cancelled_waiter_would_keep_its_place(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Acquisition, "leave", lambda _self: None)
    async with make_client() as locks, locks.hold("a", owner_name="first"):
        waiter = asyncio.create_task(locks.acquire("a", owner_name="second"))
        await asyncio.sleep(20)
        await cancelled(waiter)
        assert table.traces("a") == ["first", "second"]


async def cancel_hops_after_the_grant(locks: AsyncLockClient, table: AsyncTable, hops: int) -> int:
    """Cancels so many steps of the loop after DynamoDB's answer; returns how many hold the lock."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(locks.acquire("a"))

    def hop(left: int) -> None:
        if left:
            loop.call_soon(hop, left - 1)
        else:
            task.cancel()

    table.on_answer = lambda: hop(hops)
    await asyncio.sleep(LATENCY_SECONDS / 2)
    with suppress(asyncio.CancelledError):
        await (await task).release()
    table.on_answer = lambda: None
    await asyncio.sleep(1)
    return table.state("a").held


@pytest.mark.parametrize("hops", range(16))
@in_virtual_time
async def test_cancelled_in_the_moment_of_the_grant_the_lock_is_given_back(
    hops: int, make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        assert await cancel_hops_after_the_grant(locks, table, hops) == 0


def test_without_that_some_moment_would_leak_the_lock(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.tasks._undo", undo_nothing)
    held = []

    @in_virtual_time
    async def scene(hops: int) -> None:
        table = AsyncTable()
        locks = make_client(client=table)
        held.append(await cancel_hops_after_the_grant(locks, table, hops))
        await locks.close()

    for hops in range(16):
        scene(hops)
    assert max(held) == 1


async def delay_the_request_of_a_cancelled_task(
    make_client: MakeClient, table: AsyncTable
) -> list[str]:
    """It arrives after others had the lock; returns who holds in the end."""
    async with make_client("anna") as locks, make_client("berta") as others:
        table.ways = [2.0]
        task = asyncio.create_task(locks.acquire("a"))
        await asyncio.sleep(0.001)
        keep(cancelled(task))
        await asyncio.sleep(0.5)
        async with others.hold("a"):
            keep(cancelled(late := asyncio.create_task(others.acquire("a"))))
            await asyncio.sleep(0.1)
            assert late.done()
        await asyncio.sleep(5)
        return table.traces("a")


@in_virtual_time
async def test_a_request_that_was_sent_is_not_abandoned_it_might_arrive_late(
    make_client: MakeClient, table: AsyncTable
) -> None:
    assert await delay_the_request_of_a_cancelled_task(make_client, table) == []


@in_virtual_time
async def test_an_abandoned_request_would_take_the_lock_for_no_one(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.bridge._finish", abandon)
    assert await delay_the_request_of_a_cancelled_task(make_client, table) == ["anna"]


@in_virtual_time
async def test_a_second_cancellation_does_not_stop_the_cleanup(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks, locks.hold("a", owner_name="first"):
        waiter = asyncio.create_task(locks.acquire("a", owner_name="second"))
        await asyncio.sleep(1)
        waiter.cancel()
        await asyncio.sleep(0)
        waiter.cancel()
        with suppress(asyncio.CancelledError):
            await waiter
        await asyncio.sleep(1)
        assert table.traces("a") == ["first"]


@pytest.mark.parametrize("hops", range(12))
@in_virtual_time
async def test_a_program_that_cancels_all_tasks_does_not_stop_the_cleanup(
    hops: int, make_client: MakeClient, table: AsyncTable
) -> None:
    """As `asyncio.run` does at its end. A dead waiter would be handed the lock in vain."""
    locks = make_client()
    first = await locks.acquire("a", owner_name="first")
    waiter = asyncio.create_task(locks.acquire("a", owner_name="second"))
    await asyncio.sleep(1)
    waiter.cancel()
    await asyncio.sleep(hops * LATENCY_SECONDS / 4)
    for _ in range(2):
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.sleep(LATENCY_SECONDS / 2)
    await asyncio.sleep(LATENCY_SECONDS * 20)
    assert table.traces("a") == ["first"]
    await first.release()
    await locks.close()


@pytest.mark.parametrize("hops", range(16))
@in_virtual_time
async def test_a_cleanup_in_an_outage_does_not_take_the_place_of_the_cancellation(
    hops: int, make_client: MakeClient, table: AsyncTable
) -> None:
    """Cancelled so many steps of the loop after the grant, which cannot be given back."""
    locks, loop = make_client(), asyncio.get_running_loop()
    task = asyncio.create_task(locks.acquire("a"))

    def hop(left: int) -> None:
        table.outage, table.on_answer = lost_reply(), lambda: None
        loop.call_soon(hop, left - 1) if left else task.cancel()

    table.on_answer = lambda: hop(hops)
    await asyncio.sleep(LATENCY_SECONDS / 2)
    [ended] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError | AsyncLock)
    await locks.close()


@in_virtual_time
async def test_a_timeout_around_acquire_is_a_cancellation(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("first") as anna, make_client("second") as ben, anna.hold("a"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await ben.acquire("a")
        assert table.traces("a") == ["first"]


@pytest.mark.parametrize("seconds", [3.0, 7.0])
@in_virtual_time
async def test_a_cancellation_counts_although_it_comes_with_the_next_poll(
    seconds: float, make_client: MakeClient, table: AsyncTable
) -> None:
    """A loop that was busy finds the end of a pause and the caller's time-out due at once."""
    async with make_client("first") as anna, make_client("second") as ben, anna.hold("a"):
        loop = virtual_loop()

        async def acquire() -> None:
            async with asyncio.timeout(seconds):
                await ben.acquire("a", max_wait=1000)

        task = asyncio.create_task(acquire())
        await asyncio.sleep(seconds - 0.001)
        loop.block(6)  # Longer than the longest pause.
        with pytest.raises(TimeoutError):
            await task
        assert loop.time() < seconds + 8
        assert table.traces("a") == ["first"]


async def work_under_a_lock(locks: AsyncLockClient) -> None:
    async with locks.hold("a"):
        await asyncio.sleep(60)


async def work_without_release(locks: AsyncLockClient) -> None:
    """The protection switched off."""
    await locks.acquire("a")
    await asyncio.sleep(60)


@pytest.mark.parametrize(("work", "held"), [(work_under_a_lock, 0), (work_without_release, 1)])
@in_virtual_time
async def test_a_cancelled_body_releases_its_lock_and_without_a_with_it_would_not(
    work: Callable[[AsyncLockClient], Awaitable[None]],
    held: int,
    make_client: MakeClient,
    table: AsyncTable,
) -> None:
    locks = make_client()
    task = asyncio.ensure_future(work(locks))
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert table.state("a").held == held
    await locks.close()


@in_virtual_time
async def test_a_release_goes_on_when_its_task_is_cancelled(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        lock = await locks.acquire("a")
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(1)
        assert table.state("a").held == 0


@in_virtual_time
async def test_a_cleanup_that_fails_is_logged_and_the_cancellation_goes_on(
    make_client: MakeClient, table: AsyncTable, caplog: pytest.LogCaptureFixture
) -> None:
    locks = make_client()
    lock = await locks.acquire("a")
    table.outage = lost_reply()
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(20)
    assert "work that outlived its cancelled caller failed" in caplog.text
    await locks.close()


@in_virtual_time
async def test_a_task_that_is_cancelled_while_it_waits_for_several_locks_holds_none(
    make_client: MakeClient,
) -> None:
    async with make_client() as locks, make_client("other") as other, other.hold("b"):
        task = asyncio.create_task(locks.hold_all(["a", "b"], max_wait=60).__aenter__())
        await asyncio.sleep(5)
        assert await other.try_acquire("a") is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free = await other.try_acquire("a")
        assert free is not None
        await free.release()
