"""An event loop whose time is not that of the world: what waits, waits no longer than it must."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from leasehold.aio.bridge import BridgedAlarm, wait_for

START_MS = 1_900_000_000_000
_P = ParamSpec("_P")


class _Impatient(selectors.DefaultSelector):
    """Instead of waiting for the next timer it makes it that late."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise AssertionError("nothing will ever happen again")
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = _Impatient()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now

    def block(self, seconds: float) -> None:
        """Somebody's code blocks the loop for so long."""
        self.selector.now += seconds


class VirtualClock:
    """The clock of whatever loop is running."""

    def wall_ms(self) -> int:
        return START_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wait(self, seconds: float) -> None:
        wait_for(asyncio.sleep(seconds))

    def alarm(self) -> BridgedAlarm:
        return BridgedAlarm()


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def in_virtual_time(scene: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Makes a test of a coroutine function."""

    @functools.wraps(scene)
    def test(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(scene(*args, **kwargs))

    return test
