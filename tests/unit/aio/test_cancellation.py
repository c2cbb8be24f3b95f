"""A cancelled task leaves nothing behind, whenever it is; and what it writes again is done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from fairlock import AsyncLock, LockLost
from fairlock.errors import TransactionRefused
from tests.support.faulty_table import down
from tests.unit.aio.conftest import Far
from tests.unit.client.doubles import LATENCY_SECONDS, virtual_loop

MOMENTS = [n * LATENCY_SECONDS / 4 for n in range(24)]


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        lock = await task
        assert lock is not None


_kept: set[asyncio.Task[object]] = set()


def keep(work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    _kept.add(task)
    task.add_done_callback(_kept.discard)


@pytest.mark.parametrize("hand_off_after", [0, 0.5], ids=["free", "handed over"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_moment_of_an_acquire_nothing_is_held_or_waited_for(
    moment: float, hand_off_after: float, far: Far
) -> None:
    async with far.client() as locks:
        if hand_off_after:
            first = await locks.acquire("a", owner_name="first")
            virtual_loop().call_later(hand_off_after, lambda: keep(first.release()))
        task = asyncio.create_task(locks.acquire("a", owner_name="second"))
        await asyncio.sleep(hand_off_after + moment)
        task.cancel()
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome.release()
        await asyncio.sleep(hand_off_after + 1)
        assert far.table.traces("a") == []


@pytest.mark.parametrize("times", [1, 2])
async def test_a_waiter_that_is_cancelled_leaves_the_queue_at_once(far: Far, times: int) -> None:
    """A second cancellation does not stop the cleanup."""
    async with far.client() as locks, locks.hold("a", owner_name="first"):
        waiter = asyncio.create_task(locks.acquire("a", owner_name="second"))
        await asyncio.sleep(20)
        assert far.table.traces("a") == ["first", "second"]
        began = virtual_loop().time()
        for _ in range(times):
            waiter.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert virtual_loop().time() - began < 10 * LATENCY_SECONDS
        await asyncio.sleep(times - 1)
        assert far.table.traces("a") == ["first"]


@pytest.mark.parametrize("is_down", [False, True], ids=["", "outage"])
@pytest.mark.parametrize("hops", range(16))
async def test_cancelled_in_the_moment_of_the_grant_the_lock_is_given_back(
    hops: int, far: Far, *, is_down: bool
) -> None:
    """So many steps of the loop after the answer. An outage does not replace the cancellation."""
    async with far.client() as locks:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(locks.acquire("a"))

        def hop(left: int) -> None:
            loop.call_soon(hop, left - 1) if left else task.cancel()

        def begin() -> None:
            far.table.on_answer = lambda: None
            if is_down:
                far.table.will(down())
            hop(hops)

        far.table.on_answer = begin
        [ended] = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError | AsyncLock)
        far.table.will()
        if isinstance(ended, AsyncLock):
            await ended.release()
        await asyncio.sleep(1)
        assert is_down or far.table.state("a").held == 0


async def test_a_request_that_was_sent_is_not_abandoned_it_might_arrive_late(far: Far) -> None:
    """It arrives after others had the lock."""
    async with far.client("anna") as locks, far.client("berta") as others:
        far.table.ways = [2.0]
        task = asyncio.create_task(locks.acquire("a"))
        await asyncio.sleep(0.001)
        keep(cancelled(task))
        await asyncio.sleep(0.5)
        async with others.hold("a"):
            keep(cancelled(late := asyncio.create_task(others.acquire("a"))))
            await asyncio.sleep(0.1)
            assert late.done()
        await asyncio.sleep(5)
        assert far.table.traces("a") == []


@pytest.mark.parametrize("hops", range(12))
async def test_a_program_that_cancels_all_tasks_stops_no_cleanup(hops: int, far: Far) -> None:
    """As `asyncio.run` does at its end. A dead waiter would be handed the lock in vain."""
    locks = far.client()
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
    assert far.table.traces("a") == ["first"]
    await first.release()
    await locks.close()


@pytest.mark.parametrize("seconds", [3.0, 7.0])
async def test_a_cancellation_that_comes_with_a_poll_counts(seconds: float, far: Far) -> None:
    """A loop that was busy finds the end of a pause and the caller's time-out due at once."""
    async with far.client("first") as anna, far.client("second") as ben, anna.hold("a"):
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
        assert far.table.traces("a") == ["first"]


async def test_a_cancelled_body_releases_its_lock(far: Far) -> None:
    async def work() -> None:
        async with locks.hold("a"):
            await asyncio.sleep(60)

    async with far.client() as locks:
        task = asyncio.create_task(work())
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert far.table.state("a").held == 0


@pytest.mark.parametrize("is_down", [False, True])
async def test_a_release_goes_on_when_its_task_is_cancelled_and_if_it_fails_that_is_logged(
    far: Far, caplog: pytest.LogCaptureFixture, *, is_down: bool
) -> None:
    async with far.client() as locks:
        lock = await locks.acquire("a")
        if is_down:
            far.table.will(down())
        task = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(20)
        assert far.table.state("a").held == is_down
        assert ("work that outlived its cancelled caller failed" in caplog.text) == is_down


async def test_a_task_cancelled_while_it_waits_for_several_locks_holds_none(far: Far) -> None:
    async with far.client() as locks, far.client("other") as other, other.hold("b"):
        task = asyncio.create_task(locks.hold_all(["a", "b"], max_wait=60).__aenter__())
        await asyncio.sleep(5)
        assert await other.try_acquire("a") is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free = await other.try_acquire("a")
        assert free is not None
        await free.release()


# A guarded write is cancelled, by a time-out for instance, and made again: it is done once.

ACCOUNT = ("account", "anna")
DEPOSIT: Any = {
    "Update": {
        "TableName": "accounts",
        "Key": {"pk": {"S": ACCOUNT[0]}, "sk": {"S": ACCOUNT[1]}},
        "UpdateExpression": "ADD #balance :ten",
        "ExpressionAttributeNames": {"#balance": "balance"},
        "ExpressionAttributeValues": {":ten": {"N": "10"}},
    }
}
WRITE_MOMENTS = [n * 0.05 for n in range(9)]


@pytest.fixture
def slow(far: Far) -> Far:
    far.table.latency_seconds = 0.3
    return far


def balance(slow: Far) -> int:
    return int(slow.table.memory.items.get(ACCOUNT, {}).get("balance", {"N": "0"})["N"])


@asynccontextmanager
async def a_lock(slow: Far) -> AsyncIterator[AsyncLock]:
    async with slow.client() as locks:
        yield await locks.acquire("a")


async def timed_out(write: Awaitable[None], *, after: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after):
            await write


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("after", WRITE_MOMENTS[:6])
@pytest.mark.parametrize("pause", [0, 1])
async def test_a_write_that_is_cancelled_and_made_again_is_done_once(
    after: float, pause: float, slow: Far, *, is_down: bool, release: bool
) -> None:
    """Even if it did not happen, or is made again while its forerunner is under way."""
    async with a_lock(slow) as lock:
        if is_down:
            slow.table.will(down())
        await timed_out(lock.transact_write([DEPOSIT], token="one", release=release), after=after)
        await asyncio.sleep(pause)
        slow.table.will()
        await lock.transact_write([DEPOSIT], token="one", release=release)
        assert (balance(slow), slow.table.state("a").held) == (10, 0 if release else 1)
        assert not lock.lost.is_set()


async def test_the_same_write_of_two_tasks_at_once_is_one_if_it_has_a_token(slow: Far) -> None:
    async with a_lock(slow) as lock:
        await asyncio.gather(*(lock.transact_write([DEPOSIT], token="one") for _ in range(2)))
        assert balance(slow) == 10


@pytest.mark.parametrize("after", WRITE_MOMENTS)
async def test_a_cancelled_write_with_release_ends_the_heartbeats(after: float, slow: Far) -> None:
    told: list[AsyncLock] = []
    async with slow.client() as locks:
        lock = await locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        write = asyncio.create_task(lock.transact_write([DEPOSIT], release=True))
        await asyncio.sleep(after)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        await asyncio.sleep(1)
        sent = len(slow.table.requests)
        await asyncio.sleep(300)
        if slow.table.state("a").held == 0:
            assert (len(slow.table.requests), told, lock.lost.is_set()) == (sent, [], False)
            with pytest.raises(LockLost, match="released"):
                lock.check()
        else:
            assert after == 0  # It had not begun.


REFUSED: Any = {
    "Update": {**DEPOSIT["Update"], "ConditionExpression": "attribute_exists(#balance)"}
}


async def test_a_release_behind_a_refused_write_with_release_ends_the_lock(slow: Far) -> None:
    async with a_lock(slow) as lock:
        write = asyncio.create_task(lock.transact_write([REFUSED], release=True))
        await asyncio.sleep(0.1)
        assert await lock.release()
        with pytest.raises(TransactionRefused):
            await write
        with pytest.raises(LockLost, match="released"):
            lock.check()
        assert slow.table.state("a").held == 0
