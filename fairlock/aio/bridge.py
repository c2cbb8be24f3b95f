"""Runs synchronous code in a coroutine, so that its waiting does not block the event loop.

The protocol is written once, as plain functions that call a client and wait on a clock. Here such a
function runs in a greenlet. When it calls `wait_for`, the greenlet stands still and the coroutine
around it awaits; then the greenlet goes on with the result, or with the error, cancellation
included. There are no threads, and nothing is written twice. (SQLAlchemy's asyncio extension made
the technique known.)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, ParamSpec, TypeVar, cast

from greenlet import getcurrent, greenlet

from fairlock.clock import Alarm, BootClock

_P = ParamSpec("_P")
_T = TypeVar("_T")
_NO_OPERATIONS: Final = frozenset({"exceptions", "meta"})


class _BridgedGreenlet(greenlet):  # type: ignore[misc]  # greenlet ships no types
    """A greenlet of `run`: its parent is a coroutine that awaits on its behalf."""


async def run(function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Calls a function, which may call `wait_for`, without blocking the event loop.

    A cancellation is raised in the function, where it waits; its cleanup may wait again.
    """
    running = _BridgedGreenlet(function)
    running.gr_context = copy_context()
    switched = running.switch(*args, **kwargs)
    while not running.dead:
        # The function is not at its end: the value is what it waits for.
        try:
            result = await switched
        except BaseException:  # noqa: BLE001 - the function decides what to do, not we
            switched = running.throw(*sys.exc_info())
        else:
            switched = running.switch(result)
    return cast("_T", switched)


def wait_for(awaitable: Awaitable[_T]) -> _T:
    """Lets the coroutine around this code await, and returns the result.

    Raises:
        RuntimeError: the caller does not run within `run`.
    """
    running = getcurrent()
    if not isinstance(running, _BridgedGreenlet) or running.parent is None:
        message = "only code that the bridge of fairlock.aio runs can wait for a coroutine"
        raise RuntimeError(message)
    result: Any = running.parent.switch(awaitable)
    return cast("_T", result)


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

    def alarm(self) -> Alarm:
        """An alarm for code on the bridge."""
        return BridgedAlarm()


class BridgedAlarm:
    """A wait of code on the bridge that other code in the same event loop may end."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def wait(self, seconds: float) -> None:
        """See `Alarm`."""
        wait_for(self._wait(seconds))

    def ring(self) -> None:
        """See `Alarm`."""
        self._rung.set()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


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
