"""A thousand locks of one client over a table that takes 50 ms for each request, in real time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from leasehold import Lock, LockClient
from tests.client.doubles import Table

LEASE_SECONDS = 10
LOCKS = 1_000
LATENCY_SECONDS = 0.05


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
    with LockClient(
        "locks",
        client=table,  # type: ignore[arg-type]  # stands in for a client
        lease=LEASE_SECONDS,
        max_workers=max_workers,
    ) as locks:
        held = [
            locks.acquire(f"lock-{number}", on_danger=troubled.append, on_lost=troubled.append)
            for number in range(LOCKS)
        ]
        table.latency_seconds = LATENCY_SECONDS
        time.sleep(seconds)
        in_order = [lock for lock in held if lock.remaining > 0 and lock not in troubled]
        outcome = Outcome(len(in_order), table.largest_gap())
        table.latency_seconds = 0
        return outcome


@pytest.fixture(scope="module")
def outcomes() -> tuple[Outcome, Outcome]:
    """With the default number of workers, and with one; side by side, to save time."""
    with ThreadPoolExecutor(2) as pool:
        many = pool.submit(hold_a_thousand, max_workers=32, seconds=LEASE_SECONDS + 1)
        one = pool.submit(hold_a_thousand, max_workers=1, seconds=0.75 * LEASE_SECONDS)
        return many.result(), one.result()


def test_a_thousand_locks_at_50_ms_are_renewed_within_half_their_lease(
    outcomes: tuple[Outcome, Outcome],
) -> None:
    many, _ = outcomes
    assert many.in_order == LOCKS
    assert many.largest_gap < LEASE_SECONDS / 2


def test_heartbeats_one_after_the_other_would_be_too_slow(
    outcomes: tuple[Outcome, Outcome],
) -> None:
    _, one = outcomes
    assert one.in_order < LOCKS / 2
    assert one.largest_gap > LEASE_SECONDS / 2
