"""`max_hold` with asyncio: as with threads, but that tasks send the heartbeats and the release."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlock import AsyncLock, InvalidRequest, LockLost
from fairlock.client.heartbeats import HeartbeatSchedule
from fairlock.client.lease_handle import LeaseHandle
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time

HOLD = 600
SAFE = 20
NEARLY_OVER = "its max_hold of 600 s is nearly over"
OVER = "its max_hold of 600 s is over"


class Told:
    """What the callbacks of a lock were told, and when, counted from its beginning."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []
        self.began = asyncio.get_running_loop().time()

    def of(self, what: str) -> Any:  # noqa: ANN401 - a callback
        async def tell(_lock: AsyncLock, reason: str) -> None:
            after = asyncio.get_running_loop().time() - self.began
            self.events.append((what, reason, round(after)))

        return tell


async def overrun(locks: FakeAsyncLockClient) -> Told:
    told = Told()
    callbacks = {"on_danger": told.of("danger"), "on_lost": told.of("lost")}
    with pytest.raises(LockLost, match=OVER):
        async with locks.hold("a", max_hold=HOLD, **callbacks):
            await asyncio.sleep(HOLD + 30)
    return told


async def wait_for_it(locks: FakeAsyncLockClient) -> float:
    began = asyncio.get_running_loop().time()
    async with locks.another().hold("a", max_wait=3600):
        return asyncio.get_running_loop().time() - began


def test_danger_is_told_then_the_loss_and_the_next_one_gets_the_lock() -> None:
    async def both() -> None:
        async with FakeAsyncLockClient() as locks:
            first = asyncio.create_task(overrun(locks))
            await asyncio.sleep(1)
            assert HOLD - 1 <= await wait_for_it(locks) <= HOLD + 5
            told = await first
        assert told.events == [("danger", NEARLY_OVER, HOLD - SAFE), ("lost", OVER, HOLD)]

    run_in_virtual_time(both())


def test_the_lock_is_released_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def is_free_at_the_end() -> bool:
        async with FakeAsyncLockClient() as locks:
            await locks.acquire("a", max_hold=HOLD)
            await asyncio.sleep(HOLD + 0.5)
            found = await locks.describe("a")
            return found is None or not found.holders

    assert run_in_virtual_time(is_free_at_the_end())
    monkeypatch.setattr(LeaseHandle, "_give_back", lambda _self: None)
    assert not run_in_virtual_time(is_free_at_the_end())


async def held_after_the_end() -> list[str]:
    """Of five locks with one place for heartbeats, so that four releases wait for the first."""
    async with FakeAsyncLockClient(max_workers=1) as locks:
        for number in range(5):
            await locks.acquire(f"lock {number}", max_hold=HOLD)
        await asyncio.sleep(HOLD + 0.5)
        return [lock.name async for lock in locks.list() if lock.holders]


def test_it_is_released_even_if_all_places_for_heartbeats_are_taken() -> None:
    assert run_in_virtual_time(held_after_the_end()) == []


def test_a_schedule_that_ends_with_its_last_lock_would_forget_releases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HeartbeatSchedule, "is_empty", lambda self: not self.handles())
    assert len(run_in_virtual_time(held_after_the_end())) > 0


def test_what_makes_no_sense_is_refused_before_anything_is_sent() -> None:
    async def run() -> None:
        async with FakeAsyncLockClient() as locks:
            for call in (locks.acquire, locks.try_acquire):
                with pytest.raises(InvalidRequest, match="max_hold: "):
                    await call("a", max_hold=1)
            with pytest.raises(InvalidRequest, match="max_hold: "):
                async with locks.hold("a", max_hold=1):
                    pytest.fail("it began")
            with pytest.raises(InvalidRequest, match="max_hold: "):
                locks.hold_all(["a", "b"], max_hold=60)
            assert locks.table.requests == []

    run_in_virtual_time(run())


def test_a_leader_is_told_in_time() -> None:
    async def run() -> None:
        async with FakeAsyncLockClient() as locks:
            terms: list[int] = []

            async def work(_lock: AsyncLock, stop: asyncio.Event) -> None:
                began = asyncio.get_running_loop().time()
                if len(terms) < 2:
                    await stop.wait()
                    terms.append(round(asyncio.get_running_loop().time() - began))

            await locks.lead("exporter", work, max_hold=HOLD)
            assert terms == [HOLD - SAFE] * 2

    run_in_virtual_time(run())
