"""A holder crashed, and the next client has just begun, with all defaults."""

from __future__ import annotations

import asyncio
import math

from fairlock import AsyncLockClient
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
