"""Tests in virtual time: what waits, waits no longer than it must."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from fairlock.testing.manual_clock import VirtualTimeLoop, run_in_virtual_time

_P = ParamSpec("_P")


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def in_virtual_time(scene: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(scene)
    def test(*args: _P.args, **kwargs: _P.kwargs) -> None:
        run_in_virtual_time(scene(*args, **kwargs))

    return test
