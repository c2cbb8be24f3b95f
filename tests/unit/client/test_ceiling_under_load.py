"""A ceiling that is lowered and raised all the time beside clients that contend for the lock."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fairlock import LockClient
from fairlock.protocol.items import read_state
from fairlock.protocol.schema import lock_key
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE

NAME = "vendor"
LIMIT = 4
CHANGES = 100
THREADS = 6
LONGEST_SECONDS = 90
LONGEST_POLL = 5
"""Of a client that waits, by default."""


@dataclass
class Watched:
    """A table in memory that does one request after the other, and looks at each grant.

    Attributes:
        above: of each grant that went above the ceiling, how many held then.
        grants: how many there were.
    """

    inner: MemoryTable = field(default_factory=MemoryTable)
    above: list[int] = field(default_factory=list)
    grants: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if not callable(attribute) or name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            with self._mutex:
                before = self._tokens()
                answer = attribute(**arguments)
                self._judge(before)
                return answer

        return call

    def _tokens(self) -> set[int]:
        item = self.inner.get_item(TableName=TABLE, Key=lock_key(NAME)).get("Item", {})
        return {holder.fencing_token for holder in read_state(item).holders}

    def _judge(self, before: set[int]) -> None:
        item = self.inner.get_item(TableName=TABLE, Key=lock_key(NAME)).get("Item", {})
        state = read_state(item)
        granted = len({holder.fencing_token for holder in state.holders} - before)
        self.grants += granted
        limit = None if state.ceiling is None else state.ceiling.limit
        if granted and limit is not None and state.held > limit:
            self.above.append(state.held)


def client(table: Watched, name: str) -> LockClient:
    settings: dict[str, Any] = {"client": table, "owner_name": name}
    return LockClient(TABLE, **settings, longest_poll=0.2)


def test_after_a_pause_of_a_minute_all_who_wait_get_the_lock_in_their_order(
    record_property: Callable[[str, object], None],
) -> None:
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
            for number in range(THREADS):
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
    assert in_order == [f"worker {number}" for number in range(THREADS)]
    seconds = [at - resumed for at, _, _ in granted]
    text = f"a pause of a minute, {THREADS} clients that wait: "
    text += f"the first knows of its grant {1000 * seconds[0]:.0f} ms after resume, "
    text += f"the last {seconds[-1]:.1f} s (virtual time)"
    record_property("figures", text)
    assert seconds[0] <= LONGEST_POLL + 1, seconds


def test_a_hundred_changes_under_load_let_no_grant_above_and_lose_no_waiter(
    record_property: Callable[[str, object], None],
) -> None:
    table, done = Watched(), threading.Event()
    operator, handed_over = client(table, "olga"), []

    def work(number: int) -> int:
        turns = 0
        with client(table, f"worker {number}") as locks:
            while not done.is_set():
                with locks.hold(NAME, limit=LIMIT, max_wait=LONGEST_SECONDS):
                    turns += 1
                    done.wait(0.002)
        return turns

    with ThreadPoolExecutor(THREADS) as pool:
        workers = [pool.submit(work, number) for number in range(THREADS)]
        try:
            random = Random(7)  # noqa: S311 - no secret
            for _ in range(CHANGES):
                done.wait(0.03)
                limit = random.choice((0, 1, 2, 3, LIMIT))
                if limit:
                    operator.set_limit(NAME, limit, reason="a test")
                    continue
                operator.pause(NAME, reason="a test")
                began, before = time.monotonic(), table.grants
                operator.resume(NAME)
                if table.grants > before:
                    handed_over.append((time.monotonic() - began) * 1000)
        finally:
            done.set()
            operator.resume(NAME)
        turns = [worker.result(timeout=LONGEST_SECONDS) for worker in workers]
    assert table.above == []
    assert min(turns) > 0
    partition, sort = (part["S"] for part in lock_key(NAME).values())
    assert table.inner.items[partition, sort]["held"]["N"] == "0"
    text = f"ceiling: {CHANGES} changes, {table.grants} grants, none above"
    if handed_over:
        text += f"; hand-over at resume {statistics.median(handed_over):.1f} ms (median)"
    record_property("figures", text)
