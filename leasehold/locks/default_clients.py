"""Clients for whoever gave none: made when first needed, from LEASEHOLD_TABLE_NAME."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from leasehold.client import LockClient
from leasehold.errors import InvalidRequest
from leasehold.locks.forking import begin_anew_in_children

if TYPE_CHECKING:
    from leasehold.aio import AsyncLockClient

TABLE_NAME_VARIABLE: Final = "LEASEHOLD_TABLE_NAME"
_NO_DANGER_SECONDS: Final = 0.05

_Key = tuple[str, bool]
_clients: Final[dict[_Key, LockClient]] = {}


class _Making:
    """One makes a client at a time; and not for ever, if the child of a fork has none who does."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """See `Forked`."""
        self.lock = threading.Lock()


_making: Final = _Making()
begin_anew_in_children(_making)


def default_client(*, heartbeats: bool) -> LockClient:
    """The client of this process for the table that the environment names.

    Raises:
        InvalidRequest: it names none.
    """
    key = (_table_name(), heartbeats)
    with _making.lock:
        if key not in _clients:
            _clients[key] = LockClient(key[0], **_settings(heartbeats=heartbeats))
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


async def default_async_client(*, heartbeats: bool) -> AsyncLockClient:
    """The client of this event loop for the table that the environment names.

    Raises:
        InvalidRequest: it names none.
        ImportError: the extra `async` is not installed.
    """
    from leasehold.aio import AsyncLockClient  # noqa: PLC0415 - an optional part

    key = (_table_name(), heartbeats)
    mine = _of_loops.get(asyncio.get_running_loop())
    if mine is None:
        mine = _of_loops[asyncio.get_running_loop()] = _OfOneLoop()
        await anext(mine.keeper)
    if key not in mine.clients:
        mine.clients[key] = AsyncLockClient(key[0], **_settings(heartbeats=heartbeats))
    return mine.clients[key]


def _settings(*, heartbeats: bool) -> dict[str, Any]:
    """Of a client for whom is there for long, or for an invocation that its lease covers.

    An invocation has no time to watch the lease of a holder that died, so it goes by the end that
    the holder wrote. And its own lease comes to its end by plan: no danger to report.
    """
    if heartbeats:
        return {}
    return {
        "heartbeat_every": math.inf,
        "safe_period": _NO_DANGER_SECONDS,
        "takeover": "stored_expiry",
    }


def _table_name() -> str:
    table = os.environ.get(TABLE_NAME_VARIABLE)
    if not table:
        rule = f"give a client, or set {TABLE_NAME_VARIABLE} to the name of the lock table"
        raise InvalidRequest(field="client", rule=rule, missing=True)
    return table
