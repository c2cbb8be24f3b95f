"""The main thread ends at once; another one holds a lock, for its whole lease if no one renews it.

    python -m tests.unit.client.programs.main_thread_ends protected|unprotected

Prints whether it was renewed, what became of it, whether a callback of the lock was called, and
who holds it after the client was closed.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fairlock import LockClient
from tests.unit.client.support.doubles import Table

LEASE_SECONDS = 5.0
BEAT_SECONDS = 0.2
SAFE_SECONDS = 4.0


class Pool:
    """The control: the pool of the standard library, which ends with the main thread."""

    def __init__(self, size: int, *, name: str) -> None:
        self._pool = ThreadPoolExecutor(size, thread_name_prefix=name)

    def submit(self, work: Callable[[], None]) -> None:
        self._pool.submit(work)

    def close(self, *, wait: bool = True) -> None:
        self._pool.shutdown(wait=wait)


def work() -> None:
    threading.main_thread().join(60)
    table = Table()
    locks = LockClient(
        "locks",
        client=table,  # type: ignore[arg-type]  # a substitute
        lease=LEASE_SECONDS,
        heartbeat_every=BEAT_SECONDS,
        safe_period=SAFE_SECONDS,
    )
    told = threading.Event()
    lock = locks.acquire("a", on_danger=lambda _lock, _reason: told.set())
    is_renewed = table.does_more(3, seconds=LEASE_SECONDS)
    is_lost = lock.lost.is_set()
    table.outage = ConnectionError("unplugged")
    is_told = told.wait(LEASE_SECONDS)
    table.outage = None
    locks.close(release=True)
    answer = {
        "renewed": is_renewed,
        "lost": is_lost,
        "told of danger": is_told,
        "held": table.state("a").held,
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    if sys.argv[1] == "unprotected":
        setattr(sys.modules["fairlock.client.heartbeats"], "WorkerPool", Pool)  # noqa: B010 - the control
    threading.Thread(target=work).start()
