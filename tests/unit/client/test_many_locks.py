"""A thousand locks of one client over a table that takes 50 ms for each request, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from fairlock import Lock, LockClient
from tests.unit.client.support.doubles import Table

LEASE_SECONDS = 10
LOCKS = 1_000
LATENCY_SECONDS = 0.05
WORKERS = 32
MOST_LAG_SECONDS = 0.5
"""If the machine lets a thread wait for longer than that, what it measures says nothing."""


@dataclass
class TimedTable(Table):
    """Remembers when each lock was granted and renewed."""

    moments: dict[str, list[float]] = field(default_factory=dict)

    def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        answer = super()._send(name, arguments)
        self.moments.setdefault(arguments["Key"]["pk"]["S"], []).append(time.monotonic())
        return answer

    def largest_gap(self) -> float:
        """Seconds from one write to the next, of the lock for which that took longest."""
        now = time.monotonic()
        return max(
            later - earlier
            for moments in [[*moments, now] for moments in self.moments.values()]
            for earlier, later in pairwise(moments)
        )


@dataclass(frozen=True)
class Outcome:
    """How a thousand locks fared: how many are in order at the end, and the largest gap."""

    in_order: int
    largest_gap: float


def hold_a_thousand(*, max_workers: int, seconds: float) -> Outcome:
    """Acquires them as fast as it goes, and keeps them."""
    table = TimedTable()
    troubled: list[Lock] = []

    def trouble(lock: Lock, _reason: str) -> None:
        troubled.append(lock)

    with LockClient(
        "locks",
        client=table,  # type: ignore[arg-type]  # replaces a client
        lease=LEASE_SECONDS,
        max_workers=max_workers,
    ) as locks:
        held = [
            locks.acquire(f"lock-{number}", on_danger=trouble, on_lost=trouble)
            for number in range(LOCKS)
        ]
        table.latency_seconds = LATENCY_SECONDS
        time.sleep(seconds)
        in_order = [lock for lock in held if lock.remaining > 0 and lock not in troubled]
        outcome = Outcome(len(in_order), table.largest_gap())
        table.latency_seconds = 0
        return outcome


@contextmanager
def lag_of_the_machine() -> Iterator[list[float]]:
    """How many seconds late a thread woke up that has nothing to do, each time."""
    late: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            before = time.monotonic()
            over.wait(0.01)
            late.append(time.monotonic() - before - 0.01)

    probe = threading.Thread(target=look)
    probe.start()
    try:
        yield late
    finally:
        over.set()
        probe.join(30)


@pytest.fixture(scope="module")
def outcomes() -> tuple[Outcome, Outcome]:
    """With the default number of workers, and with one; side by side, to save time."""
    with lag_of_the_machine() as late, ThreadPoolExecutor(2) as pool:
        many = pool.submit(hold_a_thousand, max_workers=WORKERS, seconds=LEASE_SECONDS + 1)
        one = pool.submit(hold_a_thousand, max_workers=1, seconds=0.75 * LEASE_SECONDS)
        found = many.result(120), one.result(120)
    if is_in_time(found[0]) or max(late) <= MOST_LAG_SECONDS:
        return found
    return hold_a_thousand(max_workers=WORKERS, seconds=LEASE_SECONDS + 1), found[1]


def is_in_time(found: Outcome) -> bool:
    return found.in_order == LOCKS and found.largest_gap < LEASE_SECONDS / 2


def test_a_thousand_locks_at_50_ms_are_renewed_within_half_their_lease(
    outcomes: tuple[Outcome, Outcome], record_property: Callable[[str, object], None]
) -> None:
    many, one = outcomes
    record_property(
        "figures",
        f"{LOCKS:,} locks with leases of {LEASE_SECONDS} s, {1000 * LATENCY_SECONDS:.0f} ms a "
        f"request: largest time between two renewals of a lock {many.largest_gap:.1f} s, with one "
        f"worker {one.largest_gap:.1f} s",
    )
    assert many.in_order == LOCKS
    assert many.largest_gap < LEASE_SECONDS / 2


def test_heartbeats_one_after_the_other_would_be_too_slow(
    outcomes: tuple[Outcome, Outcome],
) -> None:
    _, one = outcomes
    assert one.in_order < LOCKS / 2
    assert one.largest_gap > LEASE_SECONDS / 2
