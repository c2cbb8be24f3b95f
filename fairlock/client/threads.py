"""Threads of a client: workers, and callbacks of users.

The threads of the pool neither keep the process alive nor end with its main thread, after which
`concurrent.futures` takes no work any more, although other threads hold locks. Each call of a
user's callback has a thread of its own, so a slow one delays no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from fairlock.client.reporting import logger


def is_held_by_this_thread(mutex: object) -> bool:
    """Whether this thread holds the mutex: a signal handler that waits for it waits for itself."""
    is_owned = getattr(mutex, "_is_owned", None)  # `threading.Condition` asks in the same way.
    return is_owned is not None and bool(is_owned())


_Work = Callable[[], None]


class WorkerPool:
    """Does work in at most so many threads; a thread is started when all others are busy."""

    def __init__(self, size: int, *, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._mutex = threading.Lock()

    def submit(self, work: _Work) -> None:
        """Does the work soon; a RuntimeError says that there is no thread, and none can start."""
        if not self._idle.acquire(blocking=False):
            self._add_thread()
        self._queue.put(work)

    def close(self, *, wait: bool = True) -> None:
        """Ends all threads after the work that was submitted; waits, but not for its caller."""
        with self._mutex:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            if wait and thread is not threading.current_thread():
                thread.join()

    def _add_thread(self) -> None:
        with self._mutex:
            number = len(self._threads)
            if number >= self._size:
                return
            name = f"{self._name}_{number}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The system has no more threads for this process.
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException:  # SystemExit too: the thread is still needed.
                logger.exception("work of the pool %r failed", self._name)
            del work
            self._idle.release()


_THREAD_NAME: Final = "fairlock-callback"
CLOSE_SECONDS: Final = 10.0
"""How long the end of a client waits for callbacks that have begun: they may wait for its end."""
STILL_BUSY: Final = "on_lost or on_danger is still busy: the client does not wait for it any longer"


class Callbacks:
    """Calls callbacks, each in a thread of its own, and logs what they raise."""

    def __init__(self) -> None:
        # A signal handler may call in the middle of a call of its own thread: no mutex here.
        self._waiting: SimpleQueue[tuple[str, Callable[[], None]]] = SimpleQueue()
        self._running: set[threading.Thread] = set()
        self._closed = False

    def call_soon(self, description: str, callback: Callable[[], None]) -> None:
        """Calls the callback soon, unless this is closed; the log uses the description."""
        if self._closed:
            return
        self._waiting.put((description, callback))
        # A thread of the heartbeats would hand down that the process may end in the middle.
        thread = threading.Thread(target=self._run, name=_THREAD_NAME, daemon=False)
        self._running.add(thread)
        try:
            thread.start()
        except RuntimeError as error:
            self._running.discard(thread)
            logger.warning("no thread for %s, it is called later: %s", description, error)

    def close(self) -> None:
        """Calls nothing more; waits 10 s at most for callbacks that have begun, but not in one."""
        self._closed = True
        running = self._running.copy()
        if threading.current_thread() in running:
            return
        ends_at = time.monotonic() + CLOSE_SECONDS
        for thread in running:
            with suppress(RuntimeError):  # Its start was refused.
                thread.join(max(0.0, ends_at - time.monotonic()))
        if any(thread.is_alive() for thread in running):
            logger.warning(STILL_BUSY)

    def _run(self) -> None:
        try:
            while True:
                self._call(*self._waiting.get_nowait())
        except Empty:  # Another thread has called it.
            pass
        finally:
            self._running.discard(threading.current_thread())

    @staticmethod
    def _call(description: str, callback: Callable[[], None]) -> None:
        try:
            callback()
        except BaseException:  # SystemExit too: it ends no process from here, so it must be seen.
            logger.exception("%s failed", description)
