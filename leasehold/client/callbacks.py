"""Tells users of danger and loss, in threads of its own: a slow callback delays no heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from leasehold.client.logging import failsafe_logger

_logger: Final = failsafe_logger()

_MOST_AT_ONCE: Final = 4


class Callbacks:
    """Calls callbacks, and logs what they raise."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()
        self._inside = threading.local()
        self._closed = False

    def tell(self, what: str, callback: Callable[[], None]) -> None:
        """Calls the callback soon, unless this is closed; `what` names it in the log."""
        with self._starting:
            if self._closed:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _MOST_AT_ONCE, thread_name_prefix="leasehold-report"
                )
            try:
                self._pool.submit(self._call, what, callback)
            except RuntimeError:  # The main thread has ended, and pools take no more work.
                self._call_beside(what, callback)

    def close(self) -> None:
        """Calls nothing any more; waits for callbacks that were begun, unless called by one."""
        with self._starting:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.shutdown(wait=not getattr(self._inside, "callback", False))

    def _call_beside(self, what: str, callback: Callable[[], None]) -> None:
        name = "leasehold-report"
        try:
            threading.Thread(target=self._call, args=(what, callback), name=name).start()
        except RuntimeError as error:
            _logger.warning("%s is not called: %s", what, error)

    def _call(self, what: str, callback: Callable[[], None]) -> None:
        self._inside.callback = True
        try:
            callback()
        except Exception:
            _logger.exception("%s failed", what)
