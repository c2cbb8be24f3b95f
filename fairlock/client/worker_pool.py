"""A bounded pool of threads that neither keep the process alive nor end with its main thread.

`concurrent.futures` takes no work any more once the main thread has ended, although other threads
may go on, with locks that have to be renewed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from fairlock.client.logging import logger

_Work = Callable[[], None]


class WorkerPool:
    """Does work in at most so many threads; a thread is started when all others are busy.

    Args:
        size: most threads.
        name: prefix of the threads' names.
    """

    def __init__(self, size: int, *, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._mutex = threading.Lock()

    def submit(self, work: _Work) -> None:
        """Does the work soon.

        Raises:
            RuntimeError: there is no thread, and none can be started. The work will not be done.
        """
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
