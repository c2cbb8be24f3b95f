"""An asyncio event that looks at the clock itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_LONGEST_NAP_SECONDS: Final = 1.0
"""After its client was closed nobody else looks at the clock any more."""


class LostEvent(asyncio.Event):
    """Set when a lock is lost.

    If the event loop was blocked, or the process frozen, the first to run may be somebody who asks,
    and not the heartbeats; so whoever asks makes the event find out for itself.

    Args:
        is_lost: finds out.
    """

    def __init__(self, is_lost: Callable[[], bool]) -> None:
        super().__init__()
        self._is_lost = is_lost

    def is_set(self) -> bool:
        """Whether the lock is lost."""
        return self._is_lost()

    async def wait(self) -> bool:  # type: ignore[override]  # the stubs say Literal[True]
        """Waits until the lock is lost."""
        while not self._is_lost():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_NAP_SECONDS):
                    await super().wait()
        return True
