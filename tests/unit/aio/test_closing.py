"""The end of a client, and of a program; and that a client serves one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fairlock import AsyncLockClient, ClientUnusable
from fairlock.aio import AsyncLock
from fairlock.testing import run_in_virtual_time
from fairlock.testing.fake_async_client import LoopClock
from fairlock.testing.manual_clock import VirtualTimeLoop
from tests.support.faulty_table import down
from tests.unit.aio.conftest import Far
from tests.unit.client.doubles import LATENCY_SECONDS, AsyncTable, virtual_loop

# The end of a client: nothing goes on, and no one waits for ever.


async def test_a_release_that_has_failed_is_tried_again_at_the_end_and_no_other(far: Far) -> None:
    async with far.client() as locks:
        async with locks.hold("b"):
            pass
        async with locks.hold("a"):
            far.table.will(down())
        far.table.will()
        assert far.table.traces("a") == ["anna"]
        begun = len(far.table.requests)
    assert far.table.traces("a") == []
    assert len(far.table.requests) == begun + 1


async def test_no_heartbeat_begins_after_the_end(far: Far) -> None:
    """One that changes the lease is under way when the client is closed."""
    locks = far.client()
    lock = await locks.acquire("a")
    beat = asyncio.create_task(lock.heartbeat(lease=30))
    await asyncio.sleep(0.003)
    await locks.close()
    await beat
    sent = len(far.table.requests)
    await asyncio.sleep(3600)
    assert len(far.table.requests) == sent


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


@pytest.fixture
def session(far: Far) -> Any:  # noqa: ANN401 - replaces a session
    return Session(far.table)


def client_of(session: Any) -> AsyncLockClient:  # noqa: ANN401 - same
    """It makes its own connections."""
    return AsyncLockClient("locks", session=session, clock=LoopClock(), lease=30)


@pytest.mark.parametrize("hops", range(12))
async def test_closed_in_the_moment_of_the_grant_the_lock_is_given_back(
    hops: int, session: Session, far: Far
) -> None:
    """So many turns of the loop after it; the connections are closed by then."""
    locks = client_of(session)
    await (await locks.acquire("before")).release()
    granted = asyncio.Event()
    far.table.on_answer = granted.set
    acquiring = asyncio.create_task(locks.acquire("a"))
    await granted.wait()
    for _ in range(hops):
        await asyncio.sleep(0)
    await locks.close(release=True)
    with suppress(ClientUnusable):
        lock = await acquiring
        assert not lock.lost.is_set()
    await asyncio.sleep(1)
    assert (far.table.state("a").held, session.open) == (0, 0)


@pytest.mark.parametrize("hops", range(8))
async def test_a_client_whose_end_is_cancelled_gives_back_its_locks_all_the_same(
    hops: int, session: Session, far: Far
) -> None:
    """After so many turns of the loop."""
    locks = client_of(session)
    for name in ("a", "b"):
        await locks.acquire(name)
    closing = asyncio.create_task(locks.close(release=True))
    for _ in range(1 + hops):
        await asyncio.sleep(0)
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    await locks.close(release=True)
    assert (far.table.state("a").held, far.table.state("b").held, session.open) == (0, 0, 0)


# The end of a program: tasks are cancelled and the client is closed, all at once.

MOMENTS = [n * LATENCY_SECONDS / 4 for n in range(20)]


@pytest.mark.parametrize("is_cancelled_first", [True, False])
@pytest.mark.parametrize("apart", MOMENTS)
async def test_a_waiter_that_is_stopped_in_two_ways_leaves_the_queue(
    apart: float, far: Far, *, is_cancelled_first: bool
) -> None:
    """By the same three writes as one that is stopped once: no cleanup is cut off and repeated."""
    async with far.client("first") as first, far.client("second") as locks, first.hold("a"):
        waiter = asyncio.create_task(locks.acquire("a", max_wait=600))
        loop = asyncio.get_running_loop()
        loop.call_later(1, far.table.calls.clear)
        loop.call_later(1 if is_cancelled_first else 1 + apart, waiter.cancel)
        await asyncio.sleep(1 + apart if is_cancelled_first else 1)
        await locks.close()
        await asyncio.gather(waiter, return_exceptions=True)
        await asyncio.sleep(1)
        assert (far.table.traces("a"), far.table.writes) == (["first"], 3)


async def test_the_callbacks_of_two_locks_may_both_close_the_client(far: Far) -> None:
    locks = far.client()
    closed: list[str] = []

    async def close(lock: AsyncLock, _reason: str) -> None:
        await asyncio.sleep(20)  # Until both locks are lost.
        await locks.close()
        closed.append(lock.name)

    for name in ("a", "b"):
        await locks.acquire(name, on_lost=close)
    far.table.memory.items.clear()
    await asyncio.sleep(60)
    assert sorted(closed) == ["a", "b"]


async def test_a_callback_that_waits_for_the_end_of_the_client_does_not_prevent_it(
    far: Far, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a bound it would be an hour."""
    locks, begun = far.client(), asyncio.Event()

    async def stop_the_work(_lock: AsyncLock, _reason: str) -> None:
        begun.set()
        async with asyncio.timeout(3600):
            await working

    async def work() -> None:
        await begun.wait()
        await locks.close()

    working = asyncio.create_task(work())
    await locks.acquire("a", on_lost=stop_the_work)
    far.table.memory.items.clear()
    await begun.wait()
    began = virtual_loop().time()
    await asyncio.wait([working])
    assert virtual_loop().time() - began == pytest.approx(10, abs=0.5)
    assert "is still busy: the client does not wait for it any longer" in caplog.text


@pytest.mark.parametrize("late", MOMENTS)
async def test_a_waiter_cancelled_as_it_gives_up_leaves_the_queue(late: float, far: Far) -> None:
    """As by a timeout around `acquire` that is as long as its wait."""
    async with far.client("first") as first, far.client("second") as locks, first.hold("a"):
        waiter = asyncio.create_task(locks.acquire("a", max_wait=5))
        await asyncio.sleep(5 + late)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await asyncio.sleep(1)
        assert far.table.traces("a") == ["first"]


def test_a_release_that_begins_at_the_end_of_the_program_is_sent(far: Far) -> None:
    async def work(locks: AsyncLockClient, stop: asyncio.Event) -> None:
        async with locks.hold("a"):
            await stop.wait()

    async def main() -> asyncio.Task[None]:
        stop = asyncio.Event()
        worker = asyncio.create_task(work(far.client(), stop))
        await asyncio.sleep(1)
        stop.set()  # The worker leaves its block as the loop cancels all tasks.
        return worker

    run_in_virtual_time(main())
    assert far.table.traces("a") == []


# In another event loop the connections of a client only look like an outage.


async def hold(locks: AsyncLockClient) -> None:
    async with locks.hold("a"):
        pass


def test_in_a_second_event_loop_the_client_says_so_at_once(far: Far) -> None:
    locks = far.client()

    async def hold_in_vain() -> None:
        with pytest.raises(ClientUnusable):
            await hold(locks)
        assert virtual_loop().time() == 0

    run_in_virtual_time(hold(locks))
    run_in_virtual_time(hold_in_vain())


def test_a_client_that_was_only_made_elsewhere_serves_the_loop_that_uses_it_first(far: Far) -> None:
    async def make() -> AsyncLockClient:
        return far.client()

    run_in_virtual_time(hold(run_in_virtual_time(make())))


USES: dict[str, Callable[[AsyncLock], Coroutine[Any, Any, object]]] = {
    "release": lambda lock: lock.release(),
    "heartbeat": lambda lock: lock.heartbeat(),
    "transact_write": lambda lock: lock.transact_write([]),
}


@pytest.mark.parametrize("use", USES)
def test_a_lock_is_not_used_in_another_event_loop(far: Far, use: str) -> None:
    lock = run_in_virtual_time(far.client().acquire("a"))
    sent = len(far.table.requests)
    with pytest.raises(ClientUnusable, match="lock 'a' belongs to another event loop"):
        run_in_virtual_time(USES[use](lock))
    assert len(far.table.requests) == sent


@pytest.mark.parametrize("error", [None, ValueError("of the block")], ids=["alone", "an error"])
def test_a_block_that_ends_in_another_loop_raises(far: Far, error: Exception | None) -> None:
    async def block(lock: AsyncLock) -> None:
        async with lock:
            if error is not None:
                raise error

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        lock = own_loop.run(far.client().acquire("a"))
        with pytest.raises(type(error) if error else ClientUnusable) as raised:
            run_in_virtual_time(block(lock))
        told = raised.value.__notes__[0] if error else str(raised.value)
        assert "belongs to another event loop" in told
        sent = len(far.table.requests)
        own_loop.run(asyncio.sleep(100))
        assert len(far.table.requests) == sent


def test_a_client_closed_in_another_loop_says_so_at_once_and_closes_in_its_own(far: Far) -> None:
    locks = far.client()

    async def close_in_vain() -> None:
        with pytest.raises(ClientUnusable, match="close it there"):
            await locks.close(release=True)
        assert virtual_loop().time() == 0

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        own_loop.run(locks.acquire("a"))
        run_in_virtual_time(close_in_vain())
        assert far.table.state("a").held == 1
        own_loop.run(locks.close(release=True))
    assert far.table.state("a").held == 0


def test_a_client_whose_loop_still_runs_is_closed_in_no_other(far: Far) -> None:
    async def use() -> str:
        async with far.client() as locks:
            await locks.acquire("a")
            with pytest.raises(ClientUnusable) as caught:
                await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(locks.close(), 20)))
            return str(caught.value)

    assert "close it there" in asyncio.run(use())


def test_the_end_of_a_client_in_another_loop_does_not_hide_the_error_of_its_block(far: Far) -> None:
    locks = far.client()
    run_in_virtual_time(locks.acquire("a"))

    async def block() -> None:
        async with locks:
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block") as raised:
        run_in_virtual_time(block())
    assert "close it there" in raised.value.__notes__[0]
