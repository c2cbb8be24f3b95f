"""An event that looks at the clock itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Final

_LONGEST_NAP_SECONDS: Final = 1.0
"""After its client was closed nobody else looks at the clock any more."""


class LostEvent(threading.Event):
    """Set when a lock is lost.

    A process that was frozen asks before the heartbeat thread has run again; so whoever asks makes
    the event find out for itself.

    Args:
        is_lost: finds out.
    """

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        """Whether the lock is lost."""
        return self._is_lost()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the lock is lost, at most so many seconds; returns whether it is."""
        ends_at = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_lost():
            left = ends_at - time.monotonic()
            if left <= 0:
                return False
            super().wait(min(left, _LONGEST_NAP_SECONDS))
        return True
