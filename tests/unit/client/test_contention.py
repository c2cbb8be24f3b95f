"""A ceiling that is lowered and raised all the time beside clients that contend for the lock."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from fairlock import LockClient
from tests.unit.client.doubles import Table

CLIENTS = 6
NAME = "vendor"
LIMIT = 4
CHANGES = 60
LONGEST_RUN_SECONDS = 90


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
