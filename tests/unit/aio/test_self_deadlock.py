"""A task inside the block of a lock does not wait for itself; other tasks wait."""

from __future__ import annotations

import asyncio

import pytest

from fairlock import AsyncLock, InvalidRequest, LockWaitTimeout, locked
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.virtual_time import in_virtual_time

WOULD_WAIT = r"^name: must not be 'a' here: this task is inside a `with` that holds the lock"


@in_virtual_time
async def test_a_task_that_would_wait_for_itself_is_refused_at_once(
    make_client: MakeClient,
) -> None:
    async with make_client() as locks, locks.hold("a"):
        with pytest.raises(InvalidRequest, match=WOULD_WAIT):
            await locks.acquire("a")
        with pytest.raises(InvalidRequest, match=WOULD_WAIT):
            async with locks.hold("a"):
                pass
        assert await locks.try_acquire("a") is None


@in_virtual_time
async def test_a_task_that_the_block_starts_waits_and_is_granted_after_the_block(
    make_client: MakeClient,
) -> None:
    """It has a copy of the block's context variables, and is another task all the same."""
    async with make_client() as locks:
        async with locks.hold("a", reentrant=True) as first:
            child = asyncio.create_task(locks.acquire("a"))
            with pytest.raises(LockWaitTimeout):
                await asyncio.create_task(locks.acquire("a", max_wait=1))
        second = await child
        assert second.fencing_token > first.fencing_token
        await second.release()


@in_virtual_time
async def test_a_coroutine_function_may_call_itself_if_it_is_reentrant(
    make_client: MakeClient,
) -> None:
    async with make_client() as locks:
        tokens: list[int] = []

        @locked("count", client=locks, reentrant=True)
        async def count(down: int, *, lock: AsyncLock | None = None) -> None:
            assert lock is not None
            tokens.append(lock.fencing_token)
            if down:
                await count(down - 1)

        await count(2)
        assert (len(tokens), len(set(tokens))) == (3, 1)
        assert await locks.try_acquire("count") is not None
