"""A guarded write is cancelled, by a time-out for instance, and made again: it is done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlock import AsyncLock, LockLost
from fairlock.errors import TransactionRefused
from tests.unit.aio.conftest import Far

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
EACH_WAY = pytest.mark.parametrize("release", [False, True])
MOMENTS = [n * 0.05 for n in range(9)]


@pytest.fixture
def far() -> Far:
    far = Far()
    far.table.latency_seconds = 0.3
    return far


def balance(far: Far) -> int:
    return int(far.table.memory.items.get(ACCOUNT, {}).get("balance", {"N": "0"})["N"])


@asynccontextmanager
async def a_lock(far: Far) -> AsyncIterator[AsyncLock]:
    async with far.client() as locks:
        yield await locks.acquire("a")


async def cancelled(write: Awaitable[None], *, after: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after):
            await write


@EACH_WAY
@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("after", MOMENTS[:6])
@pytest.mark.parametrize("pause", [0, 1])
async def test_a_write_that_is_cancelled_and_made_again_is_done_once(
    after: float, pause: float, far: Far, *, is_down: bool, release: bool
) -> None:
    """Even if it did not happen, or is made again while its forerunner is under way."""
    async with a_lock(far) as lock:
        far.table.is_down = is_down
        await cancelled(lock.transact_write([DEPOSIT], token="one", release=release), after=after)
        await asyncio.sleep(pause)
        far.table.is_down = False
        await lock.transact_write([DEPOSIT], token="one", release=release)
        assert (balance(far), far.table.state("a").held) == (10, 0 if release else 1)
        assert not lock.lost.is_set()


async def test_the_next_write_has_a_token_of_its_own(far: Far) -> None:
    async with a_lock(far) as lock:
        await cancelled(lock.transact_write([DEPOSIT], token="one"), after=0.2)
        for token in ("one", "two", "one"):
            await lock.transact_write([DEPOSIT], token=token)
        assert balance(far) == 20


async def test_the_same_write_of_two_tasks_at_once_is_one_if_it_has_a_token(far: Far) -> None:
    async with a_lock(far) as lock:
        await asyncio.gather(*(lock.transact_write([DEPOSIT], token="one") for _ in range(2)))
        assert balance(far) == 10


@pytest.mark.parametrize("after", MOMENTS)
async def test_a_cancelled_write_with_release_ends_the_heartbeats_and_is_no_loss(
    after: float, far: Far
) -> None:
    told: list[AsyncLock] = []
    async with far.client() as locks:
        lock = await locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        write = asyncio.create_task(lock.transact_write([DEPOSIT], release=True))
        await asyncio.sleep(after)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        await asyncio.sleep(1)
        sent = len(far.table.requests)
        await asyncio.sleep(300)
        if far.table.state("a").held == 0:
            assert (len(far.table.requests), told, lock.lost.is_set()) == (sent, [], False)
            with pytest.raises(LockLost, match="released"):
                lock.check()
        else:
            assert after == 0  # It had not begun.


REFUSED: Any = {
    "Update": {**DEPOSIT["Update"], "ConditionExpression": "attribute_exists(#balance)"}
}


async def test_a_release_behind_a_refused_write_with_release_ends_the_lock(far: Far) -> None:
    async with a_lock(far) as lock:
        write = asyncio.create_task(lock.transact_write([REFUSED], release=True))
        await asyncio.sleep(0.1)
        assert await lock.release()
        with pytest.raises(TransactionRefused):
            await write
        with pytest.raises(LockLost, match="released"):
            lock.check()
        assert far.table.state("a").held == 0
