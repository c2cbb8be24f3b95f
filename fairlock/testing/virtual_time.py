"""An event loop that does not wait: when nothing can go on, its time jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")
_NOTHING_LEFT = (
    "nothing will ever happen again in this event loop: every task waits for something that no "
    "task and no timer does"
)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for the next timer it makes it that late."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError(_NOTHING_LEFT)
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time: `asyncio.sleep(3600)` is over at once.

    For coroutines that wait for each other and for timers. Not for sockets, subprocesses and
    threads: time does not wait for these.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now

    def block(self, seconds: float) -> None:
        """Does what code does that blocks the loop: time passes, and no task runs."""
        self._jumping.now += seconds


def run_in_virtual_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine like `asyncio.run`, in an event loop of its own that does not wait.

    Raises:
        RuntimeError: every task waits, and there is no timer: in a real loop the test would hang.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
