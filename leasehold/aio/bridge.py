"""Runs synchronous code in a coroutine, so that its waiting does not block the event loop.

The protocol is written once, as plain functions that call a client and wait on a clock. Here such a
function runs in a greenlet. When it calls `wait_for`, the greenlet stands still and the coroutine
around it awaits; then the greenlet goes on with the result, or with the error, cancellation
included. There are no threads, and nothing is written twice. (SQLAlchemy's asyncio extension made
the technique known.)
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar, cast

from greenlet import getcurrent, greenlet

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        message = "only code that the bridge of leasehold.aio runs can wait for a coroutine"
        raise RuntimeError(message)
    result: Any = running.parent.switch(awaitable)
    return cast("_T", result)
