"""A client serves one event loop: in another one its connections only look like an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from botocore.exceptions import HTTPClientError

from fairlock import (
    AsyncLockClient,
    ClientUnusable,
    FairlockError,
    LockLost,
    LockStoreUnavailable,
)
from fairlock.aio.async_lock import AsyncLock
from fairlock.aio.tasks import AsyncHeartbeats
from fairlock.testing import run_in_virtual_time
from fairlock.testing.manual_clock import VirtualTimeLoop
from tests.unit.aio.conftest import MakeClient
from tests.unit.client.doubles import AsyncTable, virtual_loop


class TableOfOneLoop(AsyncTable):
    """Answers as a connection of aiohttp does whose event loop has ended."""

    loop: asyncio.AbstractEventLoop | None = None

    async def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as the table
        running = asyncio.get_running_loop()
        self.loop = self.loop or running
        if self.loop is not running:
            raise HTTPClientError(error=RuntimeError("Event loop is closed"))
        return await super()._send(name, arguments)


@pytest.fixture
def table() -> AsyncTable:
    return TableOfOneLoop()


async def failure_to_hold(locks: AsyncLockClient) -> tuple[type[FairlockError] | None, float]:
    """What the client raises, and after how many seconds."""
    try:
        async with locks.hold("a"):
            pass
    except FairlockError as error:
        return type(error), virtual_loop().time()
    return None, virtual_loop().time()


def test_in_a_second_event_loop_the_client_says_so_at_once(make_client: MakeClient) -> None:
    locks = make_client()
    assert run_in_virtual_time(failure_to_hold(locks))[0] is None
    assert run_in_virtual_time(failure_to_hold(locks)) == (ClientUnusable, 0)


def test_without_that_it_would_wait_for_the_end_of_an_outage(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.async_lock_client.is_another_running", lambda _loop: False)
    locks = make_client()
    run_in_virtual_time(failure_to_hold(locks))
    error, seconds = run_in_virtual_time(failure_to_hold(locks))
    assert error is LockStoreUnavailable
    assert seconds >= 120


USES: dict[str, Callable[[AsyncLock], Coroutine[Any, Any, object]]] = {
    "release": lambda lock: lock.release(),
    "heartbeat": lambda lock: lock.heartbeat(),
    "transact_write": lambda lock: lock.transact_write([]),
}


@pytest.mark.parametrize("use", USES)
def test_a_lock_is_not_used_in_another_event_loop(
    make_client: MakeClient, table: AsyncTable, use: str
) -> None:
    lock = run_in_virtual_time(make_client().acquire("a"))
    sent = len(table.log)
    with pytest.raises(ClientUnusable, match="lock 'a' belongs to another event loop"):
        run_in_virtual_time(USES[use](lock))
    assert len(table.log) == sent


def test_a_client_that_was_only_made_elsewhere_serves_the_loop_that_uses_it_first(
    make_client: MakeClient,
) -> None:
    async def make() -> AsyncLockClient:
        return make_client()

    locks = run_in_virtual_time(make())
    assert run_in_virtual_time(failure_to_hold(locks))[0] is None


def end(error: Exception | None) -> None:
    if error is not None:
        raise error


def end_a_block_in_another_loop(
    make_client: MakeClient, table: AsyncTable, error: Exception | None = None
) -> tuple[Exception | None, int]:
    """Returns what leaves the block, and how many heartbeats the lock's own loop sends after it."""

    async def block(lock: AsyncLock) -> Exception | None:
        try:
            async with lock:
                end(error)
        except Exception as raised:  # noqa: BLE001 - it is looked at
            return raised
        return None

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        lock = own_loop.run(make_client().acquire("a"))
        raised = run_in_virtual_time(block(lock))
        sent = len(table.log)
        own_loop.run(asyncio.sleep(100))
        return raised, len(table.log) - sent


def test_a_block_that_ends_in_another_loop_raises_and_its_lock_is_renewed_no_more(
    make_client: MakeClient, table: AsyncTable
) -> None:
    raised, heartbeats = end_a_block_in_another_loop(make_client, table)
    assert isinstance(raised, ClientUnusable)
    assert heartbeats == 0


def test_the_error_of_such_a_block_leaves_it_with_a_note(
    make_client: MakeClient, table: AsyncTable
) -> None:
    error = ValueError("of the block")
    raised, heartbeats = end_a_block_in_another_loop(make_client, table, error)
    assert raised is error
    assert "belongs to another event loop" in error.__notes__[0]
    assert heartbeats == 0


def test_without_that_the_block_would_end_in_silence_and_the_lock_never(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.client.base_lock.ClientUnusable", LockLost)
    monkeypatch.setattr(AsyncHeartbeats, "remove", lambda _heartbeats, _handle: None)
    raised, heartbeats = end_a_block_in_another_loop(make_client, table)
    assert raised is None
    assert heartbeats >= 5


def close_in_a_second_loop(locks: AsyncLockClient) -> tuple[Exception | None, float]:
    """Returns what closing with the release of all locks raises, and after how many seconds."""

    async def close() -> tuple[Exception | None, float]:
        try:
            await locks.close(release=True)
        except ClientUnusable as error:
            return error, virtual_loop().time()
        return None, virtual_loop().time()

    return run_in_virtual_time(close())


def test_a_client_that_is_closed_in_another_loop_says_so_at_once_and_closes_in_its_own(
    make_client: MakeClient, table: AsyncTable
) -> None:
    locks = make_client()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as own_loop:
        own_loop.run(locks.acquire("a"))
        error, seconds = close_in_a_second_loop(locks)
        assert "close it there" in str(error)
        assert (seconds, table.state("a").held) == (0, 1)
        own_loop.run(locks.close(release=True))
    assert table.state("a").held == 0


def test_a_client_whose_loop_still_runs_is_closed_in_no_other(make_client: MakeClient) -> None:
    async def use() -> str:
        async with make_client() as locks:
            await locks.acquire("a")
            with pytest.raises(ClientUnusable) as caught:
                await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(locks.close(), 20)))
            return str(caught.value)

    assert "close it there" in asyncio.run(use())


def test_without_that_closing_would_end_late_and_without_an_error_and_release_nothing(
    make_client: MakeClient, table: AsyncTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.aio.async_lock_client.is_another_running", lambda _loop: False)
    locks = make_client()
    run_in_virtual_time(locks.acquire("a"))
    error, seconds = close_in_a_second_loop(locks)
    assert error is None
    assert seconds > 1
    assert table.state("a").held == 1


def test_the_end_of_a_client_in_another_loop_does_not_hide_the_error_of_its_block(
    make_client: MakeClient,
) -> None:
    async def block(locks: AsyncLockClient, error: Exception | None) -> None:
        async with locks:
            end(error)

    locks, error = make_client(), ValueError("of the block")
    run_in_virtual_time(locks.acquire("a"))
    with pytest.raises(ValueError, match="of the block"):
        run_in_virtual_time(block(locks, error))
    assert "close it there" in error.__notes__[0]
    with pytest.raises(ClientUnusable, match="close it there"):
        run_in_virtual_time(block(locks, None))
