"""Calls users' callbacks in threads of their own: a slow callback delays no heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from typing import Final

from fairlock.client.logging import logger

_MOST_AT_ONCE: Final = 4
_THREAD_NAME: Final = "fairlock-callback"
CLOSE_SECONDS: Final = 10.0
"""How long the end of a client waits for callbacks that have begun: they may wait for its end."""
STILL_BUSY: Final = "on_lost or on_danger is still busy: the client does not wait for it any longer"


class Callbacks:
    """Calls callbacks, and logs what they raise."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._running: set[Future[None]] = set()
        self._mutex = threading.Lock()
        self._thread = threading.local()
        self._closed = False

    def call_soon(self, description: str, callback: Callable[[], None]) -> None:
        """Calls the callback soon, unless this is closed; the log uses the description."""
        with self._mutex:
            if self._closed:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix=_THREAD_NAME)
            try:
                running = self._pool.submit(self._call, description, callback)
                self._running.add(running)
                running.add_done_callback(self._running.discard)
            except RuntimeError:  # The main thread has ended, and such pools take no more work.
                arguments = (description, callback)
                thread = threading.Thread(target=self._call, args=arguments, name=_THREAD_NAME)
                try:
                    thread.start()
                except RuntimeError as error:
                    logger.warning("%s is not called: %s", description, error)

    def close(self) -> None:
        """Calls nothing any more; waits 10 s at most for callbacks that have begun.

        Not at all if a callback calls this.
        """
        with self._mutex:
            self._closed = True
            pool = self._pool
        if pool is None:
            return
        waits = not getattr(self._thread, "is_in_callback", False)
        if waits and wait_for_futures(self._running.copy(), CLOSE_SECONDS).not_done:
            logger.warning(STILL_BUSY)
            waits = False
        pool.shutdown(wait=waits)

    def _call(self, description: str, callback: Callable[[], None]) -> None:
        self._thread.is_in_callback = True
        try:
            callback()
        except Exception:
            logger.exception("%s failed", description)
