"""An execution starts when it is started.

AWS: a started execution enters its first state within some tens of milliseconds (seen in any
execution's history; there is no promise).

Emulator: sleeps 150 ms before each execution, synchronous and nested ones included, which a suite
of some hundred executions pays a hundred times.

This: skips that one sleep.
"""

import time
from typing import Any

from ministack.services import stepfunctions

_START_DELAY_SECONDS = 0.15


class _TimeWithoutStartDelay:
    """The module `time`, but for that sleep, which is the only one of its length."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        """Sleep, unless it is the delay before an execution."""
        if seconds != _START_DELAY_SECONDS:
            time.sleep(seconds)


def apply() -> None:
    """Give the workflow service a clock that skips the delay."""
    stepfunctions.time = _TimeWithoutStartDelay()
