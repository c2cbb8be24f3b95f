"""The client, the clock and the mutex of synchronous code that runs on the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final, TypeVar

from leasehold.aio.bridge import wait_for
from leasehold.clock import BootClock

_T = TypeVar("_T")
_NO_OPERATIONS: Final = frozenset({"exceptions", "meta"})


class BridgedClient:
    """An aiobotocore client, to be called like one of boto3's.

    A request that was sent is never abandoned: it might reach DynamoDB after the cleanup behind a
    cancelled task, and take a lock that nobody knows of. So a cancellation waits for the answer;
    time-outs bound that.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 - aiobotocore makes its classes at run time
        self._client = client

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - same
        """An operation, as a function that waits for the answer on the bridge."""
        attribute = getattr(self._client, name)
        if name in _NO_OPERATIONS:
            return attribute
        return lambda **arguments: wait_for(_finish(attribute(**arguments)))


class BridgedClock(BootClock):
    """The clock of this machine; waiting leaves the event loop to others."""

    def wait(self, seconds: float) -> None:
        """Lets that much time pass for the code on the bridge."""
        wait_for(asyncio.sleep(seconds))


class BridgedMutex:
    """Mutual exclusion of pieces of code on the bridge that wait within."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def __enter__(self) -> None:
        """Waits until no other code is inside."""
        wait_for(self._lock.acquire())

    def __exit__(self, *_raised: object) -> None:
        """Lets the next one in."""
        self._lock.release()


async def _finish(operation: Awaitable[_T]) -> _T:
    request = asyncio.ensure_future(operation)
    try:
        return await asyncio.shield(request)
    except asyncio.CancelledError:
        with suppress(Exception):
            await request
        raise
