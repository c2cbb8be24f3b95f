"""Interrupts at moments of the test's choosing, as by Ctrl-C or by a signal handler that raises."""

from __future__ import annotations

import _weakrefset
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Final


class TimeLimitError(Exception):
    """Raised by a signal handler of the program's; Celery's `SoftTimeLimitExceeded` is one."""


_WEAK: Final = {weakref.__file__, _weakrefset.__file__}


def _is_in_a_finalizer(frame: FrameType | None) -> bool:
    """Whether Python runs a `__del__`, or the callback by which a weak collection drops an item."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name == "__del__" or (file in _WEAK and name in {"remove", "_remove"}):
            return True
        frame = frame.f_back
    return False


def interrupt(action: Callable[[], object], *, at: int, within: str = "") -> bool:
    """Runs the action, and raises KeyboardInterrupt in it; returns whether it came to that.

    Python runs signal handlers when a function written in Python begins, and when a call has
    returned; so an interrupt comes at one of these moments.

    Args:
        action: what is interrupted.
        at: how many such moments pass before.
        within: counts only moments in files whose path contains this.
    """
    passed = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - as `sys.settrace` has it
        nonlocal passed
        if _is_in_a_finalizer(frame):
            return None  # Python drops what is raised there.
        if within not in frame.f_code.co_filename:
            return None  # Not traced: it has no such moment.
        frame.f_trace_lines = False
        if event in {"call", "return"}:
            passed += 1
            if passed > at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
