"""A thousand locks of one client at 50 ms a request: in virtual time."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time, virtual_loop

LOCKS = 1_000
LEASE_SECONDS = 10
LATENCY_SECONDS = 0.05


async def hold_a_thousand(
    table: AsyncTable, make_client: MakeClient, *, most_at_once: int
) -> float:
    """Returns the largest gap between two renewals of a lock, as shares of its lease."""
    random.seed(7)
    table.latency_seconds = LATENCY_SECONDS
    writes: dict[str, list[float]] = {}
    update = table.memory.update_item

    def note(**request: object) -> object:
        key: dict[str, dict[str, str]] = request["Key"]  # type: ignore[assignment]  # as DynamoDB has it
        writes.setdefault(key["pk"]["S"], []).append(virtual_loop().time())
        return update(**request)

    table.memory.update_item = note  # type: ignore[method-assign,assignment]  # remembers when
    locks = make_client(lease=LEASE_SECONDS, max_workers=most_at_once)
    await asyncio.gather(*(locks.acquire(f"lock-{n}") for n in range(LOCKS)))
    await asyncio.sleep(1.5 * LEASE_SECONDS)
    now = virtual_loop().time()
    await locks.close()
    gaps = [b - a for each in writes.values() for a, b in pairwise([*each, now])]
    return max(gaps) / LEASE_SECONDS


@in_virtual_time
async def test_a_thousand_locks_are_renewed_within_half_their_lease(
    make_client: MakeClient, table: AsyncTable
) -> None:
    assert await hold_a_thousand(table, make_client, most_at_once=32) < 0.5


@in_virtual_time
async def test_heartbeats_one_after_the_other_would_be_too_slow(
    make_client: MakeClient, table: AsyncTable
) -> None:
    assert await hold_a_thousand(table, make_client, most_at_once=1) > 0.5


@pytest.mark.parametrize("most_at_once", [4, 32])
@in_virtual_time
async def test_no_more_are_under_way_than_is_said(
    most_at_once: int, make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client(lease=2, max_workers=most_at_once) as locks:
        await asyncio.gather(*(locks.acquire(f"lock-{n}") for n in range(100)))
        begun = len(table.log)
        table.latency_seconds = 0.2
        await asyncio.sleep(1.9)
        in_flight = table.log[begun:]
        for lock in locks._services.heartbeats.handles():  # noqa: SLF001 - ended without a request each
            locks._services.heartbeats.remove(lock)  # noqa: SLF001 - same
        at_once = max(
            sum(one.sent <= moment.sent < one.arrived for one in in_flight) for moment in in_flight
        )
    assert 0 < at_once <= most_at_once
