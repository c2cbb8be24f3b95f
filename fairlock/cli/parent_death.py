"""The end of a command whose `fairlock` was killed, so that nobody renews the lock any more."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def dies_with_parent() -> Callable[[], None] | None:
    """What a child calls before it becomes the command: Linux then kills it when its parent dies.

    Guaranteed for the command itself, also after KILL or out of memory. Not for what the command
    has started, nor on other systems (None), nor for a program that changes its user.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask_the_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It has died already, and the kernel would tell nobody.
            os.kill(os.getpid(), signal.SIGKILL)

    return ask_the_kernel
