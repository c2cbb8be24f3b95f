"""`AsyncLockClient.lead`: the work is a task, which can be cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from fairlock import AsyncLock, InvalidRequest, LockLost, LockStoreUnavailable
from fairlock.testing import FakeAsyncLockClient, FakeTable, run_in_virtual_time

LEASE = 30


@pytest.fixture
def locks() -> FakeAsyncLockClient:
    return FakeAsyncLockClient(lease=LEASE)


async def test_a_task_that_goes_on_after_its_lease_is_cancelled_and_called_again(
    locks: FakeAsyncLockClient,
) -> None:
    left: list[float] = []

    async def work(lock: AsyncLock, stop: asyncio.Event) -> str:
        if left:
            return "done"
        locks.table.is_down = True
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            left.append(lock.remaining)
            assert stop.is_set()
            locks.table.is_down = False
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


async def test_a_function_that_is_no_coroutine_function_is_refused_before_anything_is_sent(
    locks: FakeAsyncLockClient,
) -> None:
    work: Any = lambda _lock, _stop: None  # noqa: E731 - the very mistake
    with pytest.raises(InvalidRequest, match=r"a coroutine function; LockClient\.lead"):
        await locks.lead("exporter", work)
    assert locks.table.requests == []


# `max_hold` beside outages and many other locks; tests/contracts/client says what it promises.

HOLD = 600


async def test_it_is_released_even_if_all_places_for_heartbeats_are_taken(
    locks: FakeAsyncLockClient,
) -> None:
    """Of five locks with one place for heartbeats, so that four releases wait for the first."""
    client = locks.another(max_workers=1)
    for number in range(5):
        await client.acquire(f"lock {number}", max_hold=HOLD)
    await asyncio.sleep(HOLD + 0.5)
    assert [lock.name async for lock in locks.list() if lock.holders] == []


class Fleet:
    """Callers of one lock, each with a client of its own, over a table that fails now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - moments
        self.table = FakeTable()
        self.inside = self.most_inside = 0
        self.tokens: list[int] = []
        self.longest = 0.0
        self.worked = 0
        self.overran = 0

    async def run(self, call: Callable[[FakeAsyncLockClient], Coroutine[Any, Any, None]]) -> None:
        first = FakeAsyncLockClient(table=self.table, lease=LEASE)
        clients = [first, *(first.another(f"host-{number}", lease=LEASE) for number in range(2))]
        tasks = [asyncio.create_task(call(locks)) for locks in clients]
        for _ in range(6):
            await asyncio.sleep(self.random.uniform(10, 300))
            self.table.is_down = True
            await asyncio.sleep(self.random.uniform(0, 40))
            self.table.is_down = False
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for locks in clients:
            await locks.close(release=True)

    @contextmanager
    def counted(self, lock: AsyncLock) -> Iterator[None]:
        self.tokens.append(lock.fencing_token)
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            yield
        finally:
            self.inside -= 1

    async def lead(self, locks: FakeAsyncLockClient) -> None:
        async def work(lock: AsyncLock, stop: asyncio.Event) -> None:
            with self.counted(lock):
                await stop.wait()
                await asyncio.sleep(LEASE / 3 - 2)  # It takes nearly all of the time that it has.

        await locks.lead("a", work)

    async def lead_on(self, locks: FakeAsyncLockClient) -> None:
        """Its work does not end when it is told, nor when it is cancelled."""
        now = asyncio.get_running_loop().time

        async def work(lock: AsyncLock, _stop: asyncio.Event) -> None:
            ends_at = now() + 300
            with self.counted(lock):
                while now() < ends_at:
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(ends_at - now())

        await locks.lead("a", work)

    async def hold(self, locks: FakeAsyncLockClient) -> None:
        """Its work takes as long as it likes."""
        while True:
            try:
                async with locks.hold("a", max_wait=3600, max_hold=90) as lock:
                    await self.work(lock)
            except LockLost as lost:
                self.overran += "max_hold" in str(lost)
            except LockStoreUnavailable:
                await asyncio.sleep(1)

    async def work(self, lock: AsyncLock) -> None:
        now = asyncio.get_running_loop().time
        began, ends_at = now(), now() + self.random.uniform(1, 200)
        with self.counted(lock):
            while now() < ends_at:
                lock.check()
                self.longest = max(self.longest, now() - began)
                await asyncio.sleep(1)  # Others come in 2 s after a lease at the earliest.
            self.worked += 1


@pytest.mark.parametrize("seed", range(3))
def test_no_two_lead_at_a_time_whatever_fails(seed: int) -> None:
    fleet = Fleet(seed)
    run_in_virtual_time(fleet.run(fleet.lead))
    assert fleet.most_inside == 1
    assert len(fleet.tokens) > 1
    assert sorted(set(fleet.tokens)) == fleet.tokens


def test_two_would_lead_at_a_time_if_work_went_on() -> None:
    fleet = Fleet(0)
    run_in_virtual_time(fleet.run(fleet.lead_on))
    assert fleet.most_inside > 1


@pytest.mark.parametrize("seed", range(2))
def test_no_two_hold_a_lock_and_none_for_longer_than_it_may_whatever_fails(seed: int) -> None:
    fleet = Fleet(seed)
    run_in_virtual_time(fleet.run(fleet.hold))
    assert fleet.most_inside == 1
    assert fleet.longest <= 90
    assert fleet.worked > 1
    assert fleet.overran > 1
