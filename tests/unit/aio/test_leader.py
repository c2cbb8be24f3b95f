"""`AsyncLockClient.lead`: the work is a task, which can be cancelled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlock import AsyncLock, InvalidRequest, LockLost, LockStoreUnavailable
from fairlock.client import local_lease
from fairlock.testing import FakeAsyncLockClient, FakeTable, run_in_virtual_time

LEASE = 60


def lead_async(main: Callable[[FakeAsyncLockClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with FakeAsyncLockClient(lease=LEASE) as locks:
            await main(locks)

    run_in_virtual_time(run())


def test_a_task_that_goes_on_after_its_lease_is_cancelled_and_called_again() -> None:
    left: list[float] = []

    async def main(locks: FakeAsyncLockClient) -> None:
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

    lead_async(main)
    assert left == [0]


def test_a_leader_whose_task_is_cancelled_releases() -> None:
    async def main(locks: FakeAsyncLockClient) -> None:
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

    lead_async(main)


def test_a_function_that_is_no_coroutine_function_is_refused_before_anything_is_sent() -> None:
    async def main(locks: FakeAsyncLockClient) -> None:
        work: Any = lambda _lock, _stop: None  # noqa: E731 - the very mistake
        with pytest.raises(InvalidRequest, match=r"a coroutine function; LockClient\.lead"):
            await locks.lead("exporter", work)
        assert locks.table.requests == []

    lead_async(main)


# `max_hold` beside outages and many other locks; tests/contracts/client says what it promises.

HOLD = 600


def test_it_is_released_even_if_all_places_for_heartbeats_are_taken() -> None:
    """Of five locks with one place for heartbeats, so that four releases wait for the first."""

    async def held_after_the_end() -> list[str]:
        async with FakeAsyncLockClient(max_workers=1) as locks:
            for number in range(5):
                await locks.acquire(f"lock {number}", max_hold=HOLD)
            await asyncio.sleep(HOLD + 0.5)
            return [lock.name async for lock in locks.list() if lock.holders]

    assert run_in_virtual_time(held_after_the_end()) == []


class Overrunning:
    """Callers whose work takes as long as it likes, over a table that fails now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - moments
        self.table = FakeTable()
        self.inside = self.most_inside = 0
        self.longest = 0.0
        self.worked = 0
        self.overran = 0

    async def run(self) -> None:
        first = FakeAsyncLockClient(table=self.table, lease=30)
        clients = [first, *(first.another(f"host-{number}", lease=30) for number in range(2))]
        tasks = [asyncio.create_task(self.work_on(locks)) for locks in clients]
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

    async def work_on(self, locks: FakeAsyncLockClient) -> None:
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
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            while now() < ends_at:
                lock.check()
                self.longest = max(self.longest, now() - began)
                await asyncio.sleep(5)
            self.worked += 1
        finally:
            self.inside -= 1


@pytest.mark.parametrize("seed", range(2))
def test_no_two_hold_a_lock_and_none_for_longer_than_it_may_whatever_fails(seed: int) -> None:
    callers = Overrunning(seed)
    run_in_virtual_time(callers.run())
    assert callers.most_inside == 1
    assert callers.longest <= 90
    assert callers.worked > 1
    assert callers.overran > 1


def test_a_release_before_the_loss_is_known_would_let_two_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of exclusion: the holder believes in its lock for five seconds too long."""
    told = local_lease.LocalLease.require_held

    def believe(self: local_lease.LocalLease) -> None:
        if not (self.is_lost() and self._clock.monotonic() < self.hold_until + 5):
            told(self)

    monkeypatch.setattr(local_lease.LocalLease, "require_held", believe)
    callers = Overrunning(1)
    run_in_virtual_time(callers.run())
    assert callers.most_inside > 1
