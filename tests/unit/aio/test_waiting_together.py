"""How fast a lock goes through a queue, and how many reads that takes; in virtual time."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack

import pytest

from tests.support.faulty_table import READS
from tests.unit.aio.conftest import Far
from tests.unit.client.doubles import LATENCY_SECONDS, virtual_loop

SECTION_SECONDS = 0.05
SPACING_SECONDS = 0.015
"""Clients that come closer together than a request may enter the queue in another order."""


async def pass_through(far: Far, *, waiters: int, clients: int) -> tuple[float, float]:
    """Lets so many tasks, evenly of so many clients, wait for a lock, and then releases it.

    Returns:
        Seconds from one grant to the next, over the seconds of a section; polls for each grant.
    """
    random.seed(1)  # In virtual time each run is the same then.
    order: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(number * SPACING_SECONDS)
        async with all_clients[number % clients].hold("a", max_wait=3600):
            order.append(number)
            await asyncio.sleep(random.uniform(0.02, 0.08))  # noqa: S311 - work

    async with AsyncExitStack() as stack:
        settings = {"lease": 3600, "heartbeat_every": math.inf}
        all_clients = [
            await stack.enter_async_context(far.client(str(n), **settings)) for n in range(clients)
        ]
        stranger = await stack.enter_async_context(far.client("stranger", **settings))
        first = await stranger.acquire("a")
        tasks = [asyncio.create_task(work(number)) for number in range(waiters)]
        await asyncio.sleep(waiters * SPACING_SECONDS + 20 * LATENCY_SECONDS)
        far.table.requests.clear()
        began = virtual_loop().time()
        await first.release()
        await asyncio.gather(*tasks)
        took = virtual_loop().time() - began
    assert order == list(range(waiters))
    reads = sum(name in READS for name in far.table.requests)
    return took / waiters / SECTION_SECONDS, reads / waiters


@pytest.mark.parametrize(
    ("clients", "most_seconds", "most_reads"),
    [(1, 1.5, 1), (5, 2, 8), (50, 2, 14)],
    ids=["of one client", "of five clients", "of clients that do not know each other"],
)
async def test_fifty_tasks_pass_the_lock_on_in_hardly_more_than_the_time_of_their_work(
    clients: int, most_seconds: float, most_reads: float, far: Far
) -> None:
    seconds, reads = await pass_through(far, waiters=50, clients=clients)
    assert seconds < most_seconds
    assert reads < most_reads


async def test_reads_for_each_grant_hardly_grow_with_the_number_of_waiters(far: Far) -> None:
    _, few = await pass_through(far, waiters=5, clients=5)
    _, many = await pass_through(far, waiters=25, clients=25)
    assert many < 4 * few
