"""The schedule: whose heartbeat is next, and how heartbeats are spread."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from fairlock import LockClient
from fairlock.client.arguments import Timing
from fairlock.client.connection import Connection, StoreFactory
from fairlock.client.heartbeats import HeartbeatSchedule, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.local_lease import LocalLease
from fairlock.client.local_waiters import LocalWaiters
from fairlock.protocol.items import read_state
from fairlock.protocol.model import Grant
from fairlock.protocol.schema import lock_key
from fairlock.testing import FakeAsyncLockClient, run_in_virtual_time
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE, moved_clock
from tests.unit.client.support.doubles import EventfulClock, Table


def grant_at(sent: float, lease_seconds: float, name: str = "a") -> Grant:
    return Grant(
        lock_name=name,
        owner_id="o" * 16,
        fencing_token=1,
        lease_ms=round(lease_seconds * 1000),
        acquired_at_ms=0,
        expires_at_ms=0,
        since=sent,
        own_ms=round(lease_seconds * 1000),
    )


def handle_of(clock: EventfulClock, *, lease_seconds: float = 30, name: str = "a") -> LeaseHandle:
    connection = Connection(
        session=None,
        dynamodb=Table(),  # type: ignore[arg-type]  # replaces a client
        stepfunctions=None,
        most_at_once=1,
    )
    stores = StoreFactory(
        connection=connection,
        table_name="locks",
        clock=clock,
        aws_clock=moved_clock(clock),
        local_waiters=LocalWaiters(clock),
    )
    lease = LocalLease(
        clock,
        grant_at(clock.monotonic(), lease_seconds, name),
        timing=Timing(heartbeat_every=None, safe_period=None),
        on_lost=lambda _reason: None,
        on_danger=lambda _reason: None,
        on_released=lambda: None,
    )
    return LeaseHandle(stores, lease)


def schedule_of(clock: EventfulClock, *leases: float, most_at_once: int = 100) -> HeartbeatSchedule:
    schedule = HeartbeatSchedule(most_at_once=most_at_once, random=random.Random(7).random)  # noqa: S311 - jitter
    for lease_seconds in leases:
        schedule.add(handle_of(clock, lease_seconds=lease_seconds))
    return schedule


def leases(heartbeats: list[ScheduledHeartbeat]) -> list[float]:
    return [scheduled.handle.lease.seconds for scheduled in heartbeats]


def test_the_lease_that_ends_first_is_renewed_first(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 33, 31, 32)
    clock.advance(15)
    assert leases(schedule.due(clock.monotonic())) == [31, 32, 33]


def test_no_more_heartbeats_are_under_way_than_there_are_workers(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 31, 32, 33, 34, most_at_once=2)
    clock.advance(15)
    now = clock.monotonic()
    first = schedule.due(now)
    assert (leases(first), schedule.due(now)) == ([31, 32], [])
    first[0].handle.lease.renew(grant_at(now, 31))
    schedule.done(first[0], renewed=True, now=now)
    assert leases(schedule.due(now)) == [33]


def test_locks_acquired_at_once_are_renewed_apart(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, *[30] * 200, most_at_once=200)
    moments: list[float] = []
    while len(moments) < 200:
        next_at = schedule.next_at()
        heartbeats = schedule.due(next_at)
        moments += [next_at] * len(heartbeats)
    began = clock.monotonic()
    assert (began + 5 <= moments[0], moments[-1] <= began + 10) == (True, True)
    assert max(later - earlier for earlier, later in pairwise(moments)) < 0.5


def test_heartbeats_that_are_late_begin_earlier(clock: EventfulClock) -> None:
    def gap_when_late_by(seconds: float) -> float:
        schedule = schedule_of(clock, 30)
        for _ in range(60):
            next_at = schedule.next_at()
            (scheduled,) = schedule.due(next_at)
            sent = next_at + seconds
            clock.now_ms = round(sent * 1000)
            scheduled.handle.lease.renew(grant_at(sent, 30))
            schedule.done(scheduled, renewed=True, now=sent)
        return scheduled.due_at - sent

    assert 9 <= gap_when_late_by(0) <= 10
    assert 6 <= gap_when_late_by(3) <= 7.1
    assert 4.5 <= gap_when_late_by(8) <= 5  # Never more often than twice as often.


def test_a_heartbeat_of_unknown_outcome_is_repeated_soon_and_until_the_end(
    clock: EventfulClock,
) -> None:
    schedule = schedule_of(clock, 30)
    tries = []
    while (next_at := schedule.next_at()) < math.inf:
        clock.now_ms = round(next_at * 1000) + 1
        for scheduled in schedule.due(clock.monotonic()):
            tries.append(clock.monotonic())
            schedule.done(scheduled, renewed=False, now=clock.monotonic())
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert max(pauses) < 4
    assert len(tries) > 15
    assert schedule.handles() == []  # Its lease is over.


def test_a_lock_that_was_taken_out_has_no_further_heartbeat(clock: EventfulClock) -> None:
    schedule = schedule_of(clock, 30, most_at_once=0)
    clock.advance(10)
    assert schedule.due(clock.monotonic()) == []
    schedule.remove(schedule.handles()[0])
    schedule.most_at_once = 1
    assert (schedule.due(clock.monotonic()), schedule.handles()) == ([], [])


def test_locks_that_come_and_go_leave_no_entries_behind(
    clock: EventfulClock,
) -> None:
    schedule = schedule_of(clock, 30)
    handle = handle_of(clock)
    for _ in range(5_000):
        schedule.add(handle)
        schedule.remove(handle)
    assert len(schedule._agenda) < 1_100  # noqa: SLF001 - memory is not otherwise visible
    assert len(schedule.handles()) == 1


# A ceiling that is lowered and raised all the time beside clients that contend for the lock.

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
