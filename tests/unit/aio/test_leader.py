"""`AsyncLockClient.lead`: the work is a task, which can be cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from fairlock import AsyncLock, InvalidRequest
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from fairlock.testing.fake_async_client import LoopClock
from tests.support.faulty_table import down
from tests.unit.client.doubles import Table

LEASE = 30


@pytest.fixture
def locks() -> FakeAsyncLockClient:
    return FakeAsyncLockClient(lease=LEASE)


async def test_a_task_that_goes_on_after_its_lease_is_cancelled_and_called_again() -> None:
    left, table = list[float](), Table(LoopClock())
    locks = FakeAsyncLockClient(table=table, lease=LEASE)

    async def work(lock: AsyncLock, stop: asyncio.Event) -> str:
        if left:
            return "done"
        table.will(down())
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            left.append(lock.remaining)
            assert stop.is_set()
            table.will()
            raise
        return "not told"

    assert await locks.lead("exporter", work) == "done"
    assert locks.clock.monotonic() < 2 * LEASE + 10
    assert left == [0]


async def test_a_leader_whose_task_is_cancelled_releases(locks: FakeAsyncLockClient) -> None:
    leads = asyncio.Event()

    async def work(_lock: AsyncLock, stop: asyncio.Event) -> None:
        leads.set()
        await stop.wait()

    task = asyncio.create_task(locks.lead("exporter", work))
    await leads.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await locks.another().try_acquire("exporter") is not None


async def test_what_is_no_coroutine_function_is_refused_unsent(locks: FakeAsyncLockClient) -> None:
    work: Any = lambda _lock, _stop: None  # noqa: E731 - the very mistake
    with pytest.raises(InvalidRequest, match=r"a coroutine function; LockClient\.lead"):
        await locks.lead("exporter", work)
    assert locks.table.requests == []


# `max_hold` beside outages and many other locks; tests/contracts/client says what it promises.

MAX_HOLD = 120


async def test_it_is_released_with_no_place_for_a_heartbeat(locks: FakeAsyncLockClient) -> None:
    """Of five locks with one place for heartbeats, so that four releases wait for the first."""
    client = locks.another(max_workers=1)
    for number in range(5):
        await client.acquire(f"lock {number}", max_hold=MAX_HOLD)
    await asyncio.sleep(MAX_HOLD + 0.5)
    assert [lock.name async for lock in locks.list() if lock.holders] == []


class Fleet:
    """Leaders of one lock, each with a client of its own, over a table that fails now and then.

    Args:
        work: what leaders do; it is called with the event that asks them to stop.
        max_hold: for how long one may lead.
    """

    def __init__(
        self,
        work: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
        max_hold: float | None = None,
    ) -> None:
        self.table = Table(LoopClock())
        self.inside = self.most_inside = 0
        self.longest = 0.0
        self.tokens: list[int] = []
        self._work, self._max_hold = work, max_hold

    async def run(self, seed: int) -> None:
        moments = random.Random(seed)  # noqa: S311 - moments
        first = FakeAsyncLockClient(table=self.table, lease=LEASE)
        clients = [first, *(first.another(f"host-{number}", lease=LEASE) for number in range(2))]
        calls = [locks.lead("a", self._lead, max_hold=self._max_hold) for locks in clients]
        tasks = [asyncio.create_task(call) for call in calls]
        for _ in range(6):
            await asyncio.sleep(moments.uniform(10, 300))
            self.table.will(down())
            await asyncio.sleep(moments.uniform(0, 40))
            self.table.will()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for locks in clients:
            await locks.close(release=True)

    async def _lead(self, lock: AsyncLock, stop: asyncio.Event) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        self.tokens.append(lock.fencing_token)
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            await self._work(stop)
        finally:
            self.inside -= 1
            self.longest = max(self.longest, now() - began)


async def end_in_time(stop: asyncio.Event) -> None:
    """It takes nearly all of the time that it has."""
    await stop.wait()
    await asyncio.sleep(LEASE / 3 - 2)


async def go_on(_stop: asyncio.Event) -> None:
    """It does not end when it is told, nor when it is cancelled."""
    now = asyncio.get_running_loop().time
    ends_at = now() + 300
    while now() < ends_at:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(ends_at - now())


@pytest.mark.parametrize("seed", range(3))
def test_no_two_lead_at_a_time_and_none_longer_than_it_may_whatever_fails(seed: int) -> None:
    fleet = Fleet(end_in_time, MAX_HOLD)
    run_in_virtual_time(fleet.run(seed))
    assert fleet.most_inside == 1
    assert len(fleet.tokens) > 3
    assert sorted(set(fleet.tokens)) == fleet.tokens
    assert fleet.longest <= MAX_HOLD


def test_two_would_lead_at_a_time_if_work_went_on() -> None:
    fleet = Fleet(go_on)
    run_in_virtual_time(fleet.run(0))
    assert fleet.most_inside > 1
