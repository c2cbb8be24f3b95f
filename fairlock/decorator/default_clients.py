"""Clients for locked functions without one: made when first needed, from FAIRLOCK_TABLE_NAME."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from fairlock.client.lock_client import LockClient
from fairlock.errors import InvalidRequest
from fairlock.names import TABLE_NAME_VARIABLE

if TYPE_CHECKING:
    from fairlock.aio import AsyncLockClient

_NO_DANGER_SECONDS: Final = 0.05


def settings_for(*, heartbeats: bool) -> dict[str, Any]:
    """The settings of a client by what its calls need; calls with the same needs share one."""
    return {} if heartbeats else {"heartbeat_every": math.inf, "safe_period": _NO_DANGER_SECONDS}


_clients: Final[dict[tuple[str, bool], LockClient]] = {}
_stand_ins: Final[dict[bool, Callable[..., Any]]] = {}
"""What makes the clients instead: for functions (False), for coroutine functions (True)."""


@contextmanager
def default_clients_from(make: Callable[..., Any], *, is_async: bool) -> Iterator[None]:
    """Within the block, calls of locked functions without a client get theirs here; for tests."""
    before = _stand_ins.get(is_async)
    _stand_ins[is_async] = make
    try:
        yield
    finally:
        del _stand_ins[is_async]
        if before is not None:
            _stand_ins[is_async] = before


def default_client(*, heartbeats: bool) -> LockClient:
    """Returns the client of this process for the table that the environment names."""
    if (stand_in := _stand_ins.get(False)) is not None:
        return cast("LockClient", stand_in(heartbeats=heartbeats))
    key = (_table_name(), heartbeats)
    if key not in _clients:
        # No mutex, which a thread of the parent may hold at a fork. Of two threads that make a
        # client in the same moment, both get the first: the other one has no thread yet.
        _clients.setdefault(key, LockClient(key[0], **settings_for(heartbeats=heartbeats)))
    return _clients[key]


_AsyncClients = dict[tuple[str, bool], "AsyncLockClient"]
_loops: Final[
    WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_AsyncClients, AsyncIterator[None]]]
] = WeakKeyDictionary()


async def _close_at_the_end(clients: _AsyncClients) -> AsyncIterator[None]:
    """A suspended generator: `asyncio.run` closes all of them before it ends the loop."""
    try:
        yield
    finally:
        _loops.pop(asyncio.get_running_loop(), None)
        for client in clients.values():
            await client.close(release=True)


async def default_async_client(*, heartbeats: bool) -> AsyncLockClient:
    """Returns the client of this event loop for the table that the environment names."""
    if (stand_in := _stand_ins.get(True)) is not None:
        return cast("AsyncLockClient", stand_in(heartbeats=heartbeats))
    from fairlock.aio import AsyncLockClient  # noqa: PLC0415 - an optional part

    key = (_table_name(), heartbeats)
    loop = asyncio.get_running_loop()
    if loop not in _loops:
        made: _AsyncClients = {}
        _loops[loop] = made, _close_at_the_end(made)
        await anext(_loops[loop][1])
    clients, _ = _loops[loop]
    if key not in clients:
        clients[key] = AsyncLockClient(key[0], **settings_for(heartbeats=heartbeats))
    return clients[key]


def _table_name() -> str:
    table = os.environ.get(TABLE_NAME_VARIABLE)
    if not table:
        rule = f"give a client, or set {TABLE_NAME_VARIABLE} to the name of the lock table"
        raise InvalidRequest(field="client", rule=rule, missing=True)
    return table
