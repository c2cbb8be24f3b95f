"""A bounded pool of threads that neither keep the process alive nor end with its main thread.

`concurrent.futures` will not do: it takes no work any more once the main thread has come to its
end, although other threads may go on, with locks that have to be renewed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from leasehold.client.logging import failsafe_logger

_logger: Final = failsafe_logger()

_Work = Callable[[], None]


class WorkerPool:
    """Does work in at most so many threads; a thread is started when all others are busy.

    Args:
        most: how many threads.
        name: prefix of their names.
    """

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def begin(self, work: _Work) -> None:
        """Does the work soon.

        Raises:
            RuntimeError: there is no thread, and none can be started. The work will not be done.
        """
        if not self._idle.acquire(blocking=False):
            self._start_one()
        self._work.put(work)

    def close(self, *, wait: bool = True) -> None:
        """Ends all threads after the work that was given to them; waits, but not for its caller."""
        with self._starting:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            if wait and thread is not threading.current_thread():
                thread.join()

    def _start_one(self) -> None:
        with self._starting:
            number = len(self._threads)
            if number >= self._most:
                return
            name = f"{self._name}_{number}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # The system has no more threads for us.
                if not self._threads:
                    raise
                return
            self._threads.append(thread)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:
                # SystemExit too: there is no one to tell, and the thread is still needed.
                _logger.exception("a thread of a lock client met a defect")
            del work
            self._idle.release()
