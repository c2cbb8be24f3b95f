"""The end of a client, and of a program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fairlock import AsyncLockClient, ClientUnusable
from fairlock.aio import AsyncLock
from fairlock.aio.tasks import AsyncHeartbeats, BackgroundTasks
from fairlock.testing import run_in_virtual_time
from fairlock.testing.fake_async_client import LoopClock
from tests.support.faulty_table import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.client.doubles import LATENCY_SECONDS, AsyncTable, in_virtual_time, virtual_loop

# The end of a client: nothing goes on, and no one waits for ever.


@in_virtual_time
async def test_a_release_that_has_failed_is_tried_again_at_the_end_and_no_other(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks:
        async with locks.hold("b"):
            pass
        async with locks.hold("a"):
            table.outage = lost_reply()
        table.outage = None
        assert table.traces("a") == ["anna"]
        begun = len(table.log)
    assert table.traces("a") == []
    assert len(table.log) == begun + 1


async def requests_after_closing_beside_a_heartbeat(
    make_client: MakeClient, table: AsyncTable
) -> int:
    """One that changes the lease is under way when the client is closed."""
    locks = make_client()
    lock = await locks.acquire("a")
    beat = asyncio.create_task(lock.heartbeat(lease=30))
    await asyncio.sleep(0.003)
    await locks.close()
    await beat
    sent = len(table.log)
    await asyncio.sleep(3600)
    return len(table.log) - sent


@in_virtual_time
async def test_no_heartbeat_begins_after_the_end(
    make_client: MakeClient, table: AsyncTable
) -> None:
    assert await requests_after_closing_beside_a_heartbeat(make_client, table) == 0


@in_virtual_time
async def test_heartbeats_that_do_not_know_of_the_end_would_begin_again(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = AsyncHeartbeats.close

    async def forget(self: AsyncHeartbeats) -> None:
        await close(self)
        self._closed = False

    monkeypatch.setattr(AsyncHeartbeats, "close", forget)
    assert await requests_after_closing_beside_a_heartbeat(make_client, table) > 300
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


class Session:
    """Makes clients as aiobotocore does: the one who has made them closes them."""

    def __init__(self, table: AsyncTable) -> None:
        self.table = table
        self.open = 0

    @asynccontextmanager
    async def create_client(self, *_: object, **__: object) -> AsyncIterator[AsyncTable]:
        self.open += 1
        yield self.table
        self.open -= 1


async def close_hops_after_the_grant(hops: int) -> tuple[int, int]:
    """Returns how many hold the lock in the end, and how many connections are open."""
    table = AsyncTable()
    session: Any = Session(table)
    locks = AsyncLockClient("locks", session=session, clock=LoopClock(), lease=30)
    await (await locks.acquire("before")).release()
    granted = asyncio.Event()
    table.on_answer = granted.set
    acquiring = asyncio.create_task(locks.acquire("a"))
    await granted.wait()
    for _ in range(hops):
        await asyncio.sleep(0)
    await locks.close(release=True)
    with suppress(ClientUnusable):
        lock = await acquiring
        assert not lock.lost.is_set()
    await asyncio.sleep(1)
    return table.state("a").held, session.open


@pytest.mark.parametrize("hops", range(12))
@in_virtual_time
async def test_closed_in_the_moment_of_the_grant_the_lock_is_given_back(hops: int) -> None:
    """Of a client that has made its own connections: they are closed by then."""
    assert await close_hops_after_the_grant(hops) == (0, 0)


def test_without_that_some_moment_would_leak_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def undo_nothing(_locks: AsyncLockClient, _waiting: object) -> None: ...

    monkeypatch.setattr(AsyncLockClient, "_undo", undo_nothing)
    held: list[int] = []

    def close_and_look(hops: int) -> Callable[[], None]:
        @in_virtual_time
        async def scene() -> None:
            held.append((await close_hops_after_the_grant(hops))[0])

        return scene

    for hops in range(12):
        close_and_look(hops)()
    assert max(held) == 1


async def held_after_a_cancelled_close(hops: int) -> int:
    """Cancels the end of a client after so many turns of the loop; returns how many locks stay."""
    table = AsyncTable()
    session: Any = Session(table)
    locks = AsyncLockClient("locks", session=session, clock=LoopClock(), lease=30)
    for name in ("a", "b"):
        await locks.acquire(name)
    closing = asyncio.create_task(locks.close(release=True))
    for _ in range(1 + hops):
        await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    await locks.close(release=True)
    assert session.open == 0
    return table.state("a").held + table.state("b").held


@pytest.mark.parametrize("hops", range(8))
@in_virtual_time
async def test_a_client_whose_end_is_cancelled_gives_back_its_locks_all_the_same(hops: int) -> None:
    assert await held_after_a_cancelled_close(hops) == 0


@in_virtual_time
async def test_unless_the_releases_are_cancelled_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unshielded(_tasks: BackgroundTasks, work: Coroutine[Any, Any, None]) -> None:
        await work

    monkeypatch.setattr(BackgroundTasks, "shielded", unshielded)
    assert await held_after_a_cancelled_close(0) == 2


# The end of a program: tasks are cancelled and the client is closed, all at once.

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
