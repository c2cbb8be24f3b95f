"""A guarded write is cancelled, by a time-out for instance, and made again: it is done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from fairlock import AsyncLock, LockLost
from fairlock.testing.fake_table import MemoryTable
from tests.support.faulty_table import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.client.doubles import AsyncTable, in_virtual_time

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


@dataclass
class Dynamo(MemoryTable):
    """A table with Anna's account."""

    @property
    def balance(self) -> int:
        return int(self.items.get(ACCOUNT, {}).get("balance", {"N": "0"})["N"])


@pytest.fixture
def dynamo() -> Dynamo:
    return Dynamo()


@pytest.fixture
def table(dynamo: Dynamo) -> AsyncTable:
    return AsyncTable(dynamo, latency_seconds=0.3)


@asynccontextmanager
async def a_lock(make_client: MakeClient) -> AsyncIterator[AsyncLock]:
    async with make_client() as locks:
        yield await locks.acquire("a")


async def cancelled(write: Awaitable[None], *, after: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(after):
            await write


@EACH_WAY
@pytest.mark.parametrize("after", MOMENTS[:6])
@pytest.mark.parametrize("pause", [0, 1])
@in_virtual_time
async def test_a_write_that_is_cancelled_and_made_again_is_done_once(
    after: float,
    pause: float,
    make_client: MakeClient,
    table: AsyncTable,
    dynamo: Dynamo,
    *,
    release: bool,
) -> None:
    """Even if it is made again while its forerunner is under way."""
    async with a_lock(make_client) as lock:
        await cancelled(lock.transact_write([DEPOSIT], token="one", release=release), after=after)
        await asyncio.sleep(pause)
        await lock.transact_write([DEPOSIT], token="one", release=release)
        assert (dynamo.balance, table.state("a").held) == (10, 0 if release else 1)
        assert not lock.lost.is_set()


@in_virtual_time
async def test_one_that_is_made_again_without_a_token_is_done_twice(
    make_client: MakeClient, dynamo: Dynamo
) -> None:
    """The negative control."""
    async with a_lock(make_client) as lock:
        await cancelled(lock.transact_write([DEPOSIT]), after=0.2)
        await lock.transact_write([DEPOSIT])
        assert dynamo.balance == 20


@EACH_WAY
@in_virtual_time
async def test_a_cancelled_write_that_did_not_happen_is_made_up_for(
    make_client: MakeClient, table: AsyncTable, dynamo: Dynamo, *, release: bool
) -> None:
    async with a_lock(make_client) as lock:
        table.outage = lost_reply()
        await cancelled(lock.transact_write([DEPOSIT], token="one", release=release), after=0.2)
        await asyncio.sleep(1)
        table.outage = None
        await lock.transact_write([DEPOSIT], token="one", release=release)
        assert (dynamo.balance, table.state("a").held) == (10, 0 if release else 1)


@in_virtual_time
async def test_the_next_write_has_a_token_of_its_own(
    make_client: MakeClient, dynamo: Dynamo
) -> None:
    async with a_lock(make_client) as lock:
        await cancelled(lock.transact_write([DEPOSIT], token="one"), after=0.2)
        for token in ("one", "two", "one"):
            await lock.transact_write([DEPOSIT], token=token)
        assert dynamo.balance == 20


@pytest.mark.parametrize(("token", "balance"), [(None, 20), ("one", 10)])
@in_virtual_time
async def test_the_same_write_of_two_tasks_at_a_time_is_one_write_if_it_has_a_token(
    token: str | None, balance: int, make_client: MakeClient, dynamo: Dynamo
) -> None:
    async with a_lock(make_client) as lock:
        await asyncio.gather(*(lock.transact_write([DEPOSIT], token=token) for _ in range(2)))
        assert dynamo.balance == balance


@pytest.mark.parametrize("after", MOMENTS)
@in_virtual_time
async def test_a_cancelled_write_with_release_ends_the_heartbeats_and_is_no_loss(
    after: float, make_client: MakeClient, table: AsyncTable
) -> None:
    told: list[AsyncLock] = []
    async with make_client() as locks:
        lock = await locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        write = asyncio.create_task(lock.transact_write([DEPOSIT], release=True))
        await asyncio.sleep(after)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        await asyncio.sleep(1)
        sent = len(table.log)
        await asyncio.sleep(300)
        if table.state("a").held == 0:
            assert (len(table.log), told, lock.lost.is_set()) == (sent, [], False)
            with pytest.raises(LockLost, match="released"):
                lock.check()
        else:
            assert after == 0  # It had not begun.
