"""A holder crashed, and the next client has just begun, with all defaults."""

from __future__ import annotations

import asyncio
import math

import pytest

from fairlock import AsyncLockClient, LockWaitTimeout
from fairlock.client.settings import ClientSettings
from fairlock.testing.fake_async_client import LoopClock
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop


async def crash(table: AsyncTable) -> None:
    """Acquires, and is never heard of again."""
    clock = LoopClock()
    crashed = AsyncLockClient("locks", client=table, clock=clock, heartbeat_every=math.inf)
    await crashed.acquire("nightly", owner_name="crashed")
    await asyncio.sleep(3600)
    await crashed.close()


@in_virtual_time
async def test_a_client_that_has_just_begun_replaces_a_crashed_holder() -> None:
    table = AsyncTable()
    await crash(table)
    began = virtual_loop().time()
    async with AsyncLockClient("locks", client=table, clock=LoopClock()) as locks:
        await locks.acquire("nightly")
        assert virtual_loop().time() - began < 62


@in_virtual_time
async def test_with_a_wait_as_long_as_the_lease_it_would_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClientSettings, "longest_wait", lambda _settings, lease: lease)
    table = AsyncTable()
    await crash(table)
    async with AsyncLockClient("locks", client=table, clock=LoopClock()) as locks:
        with pytest.raises(LockWaitTimeout, match="a wait of 62 s would"):
            await locks.acquire("nightly")


@in_virtual_time
async def test_one_look_is_no_watch_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    table = AsyncTable()
    await crash(table)
    caplog.clear()
    async with AsyncLockClient("locks", client=table, clock=LoopClock()) as locks:
        assert await locks.try_acquire("nightly") is None
    assert "not taken; the lease of crashed is over by the wall clock" in caplog.text
