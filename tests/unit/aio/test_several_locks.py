"""`hold_all` of asyncio; and that callers with crossed lists never wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from fairlock import LockWaitTimeout
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.virtual_time import in_virtual_time

LISTS = (["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"], ["c", "a"])


async def take_turns(make_client: MakeClient) -> list[bool]:
    """Whether each of these callers had all of its locks, within 30 s."""
    inside: set[str] = set()

    async def caller(number: int, names: Sequence[str]) -> bool:
        async with make_client(f"caller {number}") as locks:
            try:
                async with locks.hold_all(names, max_wait=30) as held:
                    assert [lock.name for lock in held] == names
                    assert not inside & set(names)
                    inside.update(names)
                    await asyncio.sleep(1)
                    inside.difference_update(names)
            except LockWaitTimeout:
                return False
        return True

    return await asyncio.gather(*(caller(number, names) for number, names in enumerate(LISTS)))


@in_virtual_time
async def test_callers_with_crossed_lists_all_have_their_turn(make_client: MakeClient) -> None:
    assert await take_turns(make_client) == [True] * len(LISTS)


@in_virtual_time
async def test_in_the_order_of_their_lists_they_wait_for_each_other(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr("fairlock.wire.rules.in_lock_order", list)
    assert False in await take_turns(make_client)


@in_virtual_time
async def test_a_task_that_is_cancelled_while_it_waits_holds_none(make_client: MakeClient) -> None:
    async with make_client() as locks, make_client("other") as other, other.hold("b"):
        task = asyncio.create_task(locks.hold_all(["a", "b"], max_wait=60).__aenter__())
        await asyncio.sleep(5)
        assert await other.try_acquire("a") is None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free = await other.try_acquire("a")
        assert free is not None
        await free.release()
