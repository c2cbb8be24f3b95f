"""The hook for metrics of the asyncio client: a thread calls it, and no task waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fairlock import AsyncLockClient, LockEvent
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from fairlock.testing.fake_async_client import _Awaitable
from fairlock.testing.fake_table import FakeTable


def test_a_cancelled_acquisition_is_no_event() -> None:
    told: list[LockEvent] = []

    async def scene() -> None:
        locks = FakeAsyncLockClient(on_event=told.append)
        async with locks, locks.another().hold("a"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await locks.acquire("a")

    run_in_virtual_time(scene())
    assert told == []


def test_the_end_of_the_client_waits_for_the_hook_and_lets_the_loop_run() -> None:
    told: list[str] = []
    first, goes_on = threading.Event(), threading.Event()

    def hook(event: LockEvent) -> None:
        first.set()
        goes_on.wait(30)
        told.append(event.kind.value)

    async def let_go_on() -> None:
        await asyncio.to_thread(first.wait, 30)
        goes_on.set()

    async def scene() -> None:
        client = _Awaitable(FakeTable())
        async with AsyncLockClient("locks", client=client, on_event=hook) as locks:
            releasing = asyncio.create_task(let_go_on())
            async with locks.hold("a"):
                pass
        await releasing

    asyncio.run(scene())
    assert told == ["Granted", "Released"]
