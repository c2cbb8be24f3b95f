"""A client serves one event loop: in another one its connections only look like an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlock import AsyncLockClient, ClientUnusable
from fairlock.aio.async_lock import AsyncLock
from fairlock.testing import run_in_virtual_time
from fairlock.testing.manual_clock import VirtualTimeLoop
from tests.unit.aio.conftest import Far
from tests.unit.client.doubles import virtual_loop


async def hold(locks: AsyncLockClient) -> None:
    async with locks.hold("a"):
        pass


def test_in_a_second_event_loop_the_client_says_so_at_once(far: Far) -> None:
    locks = far.client()

    async def hold_in_vain() -> None:
        with pytest.raises(ClientUnusable):
            await hold(locks)
        assert virtual_loop().time() == 0

    run_in_virtual_time(hold(locks))
    run_in_virtual_time(hold_in_vain())


def test_a_client_that_was_only_made_elsewhere_serves_the_loop_that_uses_it_first(far: Far) -> None:
    async def make() -> AsyncLockClient:
        return far.client()

    run_in_virtual_time(hold(run_in_virtual_time(make())))


USES: dict[str, Callable[[AsyncLock], Coroutine[Any, Any, object]]] = {
    "release": lambda lock: lock.release(),
    "heartbeat": lambda lock: lock.heartbeat(),
    "transact_write": lambda lock: lock.transact_write([]),
}


@pytest.mark.parametrize("use", USES)
def test_a_lock_is_not_used_in_another_event_loop(far: Far, use: str) -> None:
    lock = run_in_virtual_time(far.client().acquire("a"))
    sent = len(far.table.requests)
    with pytest.raises(ClientUnusable, match="lock 'a' belongs to another event loop"):
        run_in_virtual_time(USES[use](lock))
    assert len(far.table.requests) == sent


@pytest.mark.parametrize("error", [None, ValueError("of the block")], ids=["alone", "an error"])
def test_a_block_that_ends_in_another_loop_raises_and_its_lock_is_renewed_no_more(
    far: Far, error: Exception | None
) -> None:
    async def block(lock: AsyncLock) -> None:
        async with lock:
            if error is not None:
                raise error

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        lock = own_loop.run(far.client().acquire("a"))
        with pytest.raises(type(error) if error else ClientUnusable) as raised:
            run_in_virtual_time(block(lock))
        told = raised.value.__notes__[0] if error else str(raised.value)
        assert "belongs to another event loop" in told
        sent = len(far.table.requests)
        own_loop.run(asyncio.sleep(100))
        assert len(far.table.requests) == sent


def test_a_client_closed_in_another_loop_says_so_at_once_and_closes_in_its_own(far: Far) -> None:
    locks = far.client()

    async def close_in_vain() -> None:
        with pytest.raises(ClientUnusable, match="close it there"):
            await locks.close(release=True)
        assert virtual_loop().time() == 0

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        own_loop.run(locks.acquire("a"))
        run_in_virtual_time(close_in_vain())
        assert far.table.state("a").held == 1
        own_loop.run(locks.close(release=True))
    assert far.table.state("a").held == 0


def test_a_client_whose_loop_still_runs_is_closed_in_no_other(far: Far) -> None:
    async def use() -> str:
        async with far.client() as locks:
            await locks.acquire("a")
            with pytest.raises(ClientUnusable) as caught:
                await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(locks.close(), 20)))
            return str(caught.value)

    assert "close it there" in asyncio.run(use())


def test_the_end_of_a_client_in_another_loop_does_not_hide_the_error_of_its_block(far: Far) -> None:
    locks = far.client()
    run_in_virtual_time(locks.acquire("a"))

    async def block() -> None:
        async with locks:
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block") as raised:
        run_in_virtual_time(block())
    assert "close it there" in raised.value.__notes__[0]
