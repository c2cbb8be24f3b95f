"""The end of a client: nothing goes on, and no one waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fairlock import AsyncLockClient, ClientUnusable
from fairlock.aio.tasks import AsyncHeartbeats, BackgroundTasks
from fairlock.testing.fake_async_client import LoopClock
from tests.support.faults import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop


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
    assert "lock 'a': release at close failed; the lease ends it" in caplog.text


@in_virtual_time
async def test_closing_ends_waits_and_they_leave_the_queue(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client("first") as others, others.hold("a"):
        locks = make_client("second")
        waiter = asyncio.create_task(locks.acquire("a", max_wait=600))
        await asyncio.sleep(20)
        began = virtual_loop().time()
        await locks.close()
        with pytest.raises(ClientUnusable, match="this AsyncLockClient is closed"):
            await waiter
        assert virtual_loop().time() - began < 1
        assert table.traces("a") == ["first"]


@in_virtual_time
async def test_a_closed_client_acquires_nothing(make_client: MakeClient, table: AsyncTable) -> None:
    locks = make_client()
    await locks.close()
    await locks.close()
    with pytest.raises(ClientUnusable, match="closed"):
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
