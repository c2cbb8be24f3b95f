"""Many clients at the same moment: a queue, and a ceiling that changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from fairlock import LockClient
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from tests.unit.client.doubles import Table

CLIENTS = 6


# A ceiling that is lowered and raised all the time beside clients that contend for the lock.

NAME = "vendor"
LIMIT = 4
CHANGES = 60
LONGEST_RUN_SECONDS = 90
LONGEST_POLL = 5
"""Of a client that waits, by default."""


class Watched(Table):
    """Does one request after the other, and looks at each grant.

    Attributes:
        above: of each grant that went above the ceiling, how many held then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.above: list[int] = []
        self._mutex = threading.Lock()

    def _send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        with self._mutex:
            before = {holder.fencing_token for holder in self.state(NAME).holders}
            answer = super()._send(name, request)
            state = self.state(NAME)
            granted = {holder.fencing_token for holder in state.holders} - before
            limit = None if state.ceiling is None else state.ceiling.limit
            if granted and limit is not None and state.held > limit:
                self.above.append(state.held)
            return answer


def test_after_a_pause_of_a_minute_all_who_wait_get_the_lock_in_their_order() -> None:
    """In virtual time, by clients that poll: a workflow is told by a message."""
    granted: list[tuple[float, int, str]] = []

    async def main() -> float:
        async with FakeAsyncLockClient(owner_name="olga") as operator:
            await operator.pause(NAME, reason="a test")

            async def wait(name: str) -> None:
                async with operator.another(name).hold(NAME, limit=2, max_wait=600) as lock:
                    granted.append((operator.clock.monotonic(), lock.fencing_token, name))
                    await asyncio.sleep(0.5)

            tasks = []
            for number in range(CLIENTS):
                tasks.append(asyncio.create_task(wait(f"worker {number}")))
                await asyncio.sleep(0.1)
            await asyncio.sleep(60)
            assert granted == []
            resumed = operator.clock.monotonic()
            await operator.resume(NAME)
            await asyncio.gather(*tasks)
            return resumed

    resumed = run_in_virtual_time(main())
    in_order = [name for _, _, name in sorted(granted, key=lambda one: one[1])]
    assert in_order == [f"worker {number}" for number in range(CLIENTS)]
    assert granted[0][0] - resumed <= LONGEST_POLL + 1


def test_changes_under_load_let_no_grant_above_and_lose_no_waiter() -> None:
    table, done = Watched(), threading.Event()
    operator = LockClient("locks", client=table)

    def work() -> int:
        turns = 0
        with LockClient("locks", client=table, longest_poll=0.2) as locks:
            while not done.is_set():
                with locks.hold(NAME, limit=LIMIT, max_wait=LONGEST_RUN_SECONDS):
                    turns += 1
                    done.wait(0.002)
        return turns

    with ThreadPoolExecutor(CLIENTS) as pool:
        workers = [pool.submit(work) for _ in range(CLIENTS)]
        try:
            random = Random(7)  # noqa: S311 - no secret
            for _ in range(CHANGES):
                done.wait(0.03)
                limit = random.choice((0, 1, 2, 3, LIMIT))
                if limit:
                    operator.set_limit(NAME, limit, reason="a test")
                else:
                    operator.pause(NAME, reason="a test")
                    operator.resume(NAME)
        finally:
            done.set()
            operator.resume(NAME)
        turns = [worker.result(timeout=LONGEST_RUN_SECONDS) for worker in workers]
    assert table.above == []
    assert min(turns) > 0
    assert table.state(NAME).held == 0
