"""Runs synchronous code in a coroutine: whatever it has to wait for, the event loop waits for.

The protocol is written once, as plain functions that call a client and wait on a clock. Here such a
function runs in a greenlet. When it calls `wait_for`, the greenlet stands still and the coroutine
around it awaits; then the greenlet goes on with the result, or with the error, cancellation
included. No threads, and nothing of the protocol is written twice. (SQLAlchemy's asyncio extension
made the idea known.)
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
    """Calls the function, which may call `wait_for`, without holding up the event loop.

    A cancellation is raised in the function, where it waits; what the function does about it may
    wait again.
    """
    crossing = _BridgedGreenlet(function)
    crossing.gr_context = copy_context()
    switched = crossing.switch(*args, **kwargs)
    while not crossing.dead:
        # Not at its end yet: what came back is what it waits for.
        try:
            result = await switched
        except BaseException:  # noqa: BLE001 - the function decides what to do, not we
            switched = crossing.throw(*sys.exc_info())
        else:
            switched = crossing.switch(result)
    return cast("_T", switched)


def wait_for(awaitable: Awaitable[_T]) -> _T:
    """Lets the coroutine around this code await, and returns the result.

    Raises:
        RuntimeError: the code does not run within `run`.
    """
    crossing = getcurrent()
    if not isinstance(crossing, _BridgedGreenlet) or crossing.parent is None:
        message = "only code that the bridge of leasehold.aio runs can wait for a coroutine"
        raise RuntimeError(message)
    result: Any = crossing.parent.switch(awaitable)
    return cast("_T", result)
