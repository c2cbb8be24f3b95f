"""Clients for whoever gave none: made when first needed, from LEASEHOLD_TABLE_NAME."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from leasehold.client.lock_client import LockClient
from leasehold.client.process import reset_in_children
from leasehold.errors import InvalidRequest

if TYPE_CHECKING:
    from leasehold.aio import AsyncLockClient

TABLE_NAME_VARIABLE: Final = "LEASEHOLD_TABLE_NAME"
_NO_DANGER_SECONDS: Final = 0.05

_Key = tuple[str, bool, bool]
_clients: Final[dict[_Key, LockClient]] = {}


class _Making:
    """One makes a client at a time; and not for ever, if the child of a fork has none who does."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """See `Resettable`."""
        self.lock = threading.Lock()


_making: Final = _Making()
reset_in_children(_making)


def default_client(*, heartbeats: bool, watches: bool) -> LockClient:
    """The client of this process for the table that the environment names.

    Args:
        heartbeats: whether locks have to be renewed.
        watches: whether its calls wait for as long as it takes to watch a holder that died.

    Raises:
        InvalidRequest: it names none.
    """
    key = (_table_name(), heartbeats, watches)
    with _making.lock:
        if key not in _clients:
            settings = _settings(heartbeats=heartbeats, watches=watches)
            _clients[key] = LockClient(key[0], **settings)
        return _clients[key]


class _OfOneLoop:
    """The clients of one event loop, and what closes them at its end."""

    def __init__(self) -> None:
        self.clients: dict[_Key, AsyncLockClient] = {}
        self.keeper: AsyncIterator[None] = self._close_at_the_end()

    async def _close_at_the_end(self) -> AsyncIterator[None]:
        """A generator that stands still: `asyncio.run` ends all of them before it ends the loop."""
        try:
            yield
        finally:
            _of_loops.pop(asyncio.get_running_loop(), None)
            for client in self.clients.values():
                await client.close(release=True)


_of_loops: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _OfOneLoop]] = WeakKeyDictionary()


async def default_async_client(*, heartbeats: bool, watches: bool) -> AsyncLockClient:
    """The client of this event loop for the table that the environment names.

    Arguments as of `default_client`.

    Raises:
        InvalidRequest: it names none.
        ImportError: the extra `async` is not installed.
    """
    from leasehold.aio import AsyncLockClient  # noqa: PLC0415 - an optional part

    key = (_table_name(), heartbeats, watches)
    mine = _of_loops.get(asyncio.get_running_loop())
    if mine is None:
        mine = _of_loops[asyncio.get_running_loop()] = _OfOneLoop()
        await anext(mine.keeper)
    if key not in mine.clients:
        settings = _settings(heartbeats=heartbeats, watches=watches)
        mine.clients[key] = AsyncLockClient(key[0], **settings)
    return mine.clients[key]


def _settings(*, heartbeats: bool, watches: bool) -> dict[str, Any]:
    """Of a client for whom is there for long, or for an invocation that its lease covers.

    An invocation has no time to watch the lease of a holder that died, and a call that looks only
    once does not, so they go by the end that the holder wrote. And a lease to the end of the
    invocation comes to its own end by plan: no danger to report.
    """
    settings: dict[str, Any] = {} if watches else {"takeover": "stored_expiry"}
    if not heartbeats:
        settings |= {"heartbeat_every": math.inf, "safe_period": _NO_DANGER_SECONDS}
    return settings


def _table_name() -> str:
    table = os.environ.get(TABLE_NAME_VARIABLE)
    if not table:
        rule = f"give a client, or set {TABLE_NAME_VARIABLE} to the name of the lock table"
        raise InvalidRequest(field="client", rule=rule, missing=True)
    return table
