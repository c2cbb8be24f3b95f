"""The main thread ends at once; another one holds a lock for longer than its lease.

    python -m tests.client.programs.orphaned protected|unprotected

Prints what became of the lock, whether a callback of the lock was called, and who holds it after
the client was closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from leasehold import LockClient
from tests.client.doubles import Table

LEASE_SECONDS = 1.2


class Pool:
    """The control: the pool of the standard library, which ends with the main thread."""

    def __init__(self, most: int, *, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    def begin(self, work: Callable[[], None]) -> None:
        self._pool.submit(work)

    def close(self) -> None:
        self._pool.shutdown()


def work() -> None:
    threading.main_thread().join()
    table = Table()
    locks = LockClient("locks", client=table, lease=LEASE_SECONDS)  # type: ignore[arg-type]  # stands in
    told = threading.Event()
    lock = locks.acquire("a", on_danger=lambda _: told.set())
    time.sleep(1.5 * LEASE_SECONDS)
    is_lost = lock.lost.is_set()
    table.outage = ConnectionError("unplugged")
    is_told = told.wait(LEASE_SECONDS)
    table.outage = None
    locks.close(release=True)
    answer = {"lost": is_lost, "told of danger": is_told, "held": table.state("a").held}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    if sys.argv[1] == "unprotected":
        setattr(sys.modules["leasehold.locks.heartbeats"], "Crew", Pool)  # noqa: B010 - the control
    threading.Thread(target=work).start()
