"""One execution, or a caller that names one, cannot block a name for long."""

from __future__ import annotations

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol import grants
from fairlock.protocol.outcomes import Grant, Queued, Refusal, RefusalReason
from fairlock.protocol.waiters import MOST_PLACES_OF_AN_EXECUTION
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.store_bench import OTHER_RUN, Bench
from tests.support.workflows import FakeWorkflows

LONGEST_LEASE_MS = 12 * 3_600_000
SOON_SECONDS = 70


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("holder", lease_ms=LONGEST_LEASE_MS))
    return bench


def test_an_execution_has_a_hundred_places_in_a_queue_at_most(bench: Bench) -> None:
    answers = [bench.wait(f"ghost-{n}") for n in range(MOST_PLACES_OF_AN_EXECUTION + 1)]
    assert all(isinstance(answer, Queued) for answer in answers[:-1])
    assert isinstance(answers[-1], Refusal)
    assert answers[-1].reason is RefusalReason.QUEUE_FULL
    assert isinstance(bench.wait("ben", execution_arn=OTHER_RUN), Queued)
    assert isinstance(bench.store().acquire(acquire("carl", waits=True)), Queued)


def test_who_keeps_its_place_is_not_counted_against_itself(bench: Bench) -> None:
    for number in range(MOST_PLACES_OF_AN_EXECUTION):
        bench.wait(f"ghost-{number}")
    assert isinstance(bench.wait("ghost-7"), Queued)


def taken_after_a_while(bench: Bench) -> bool:
    """A ghost with the longest lease is handed the lock; its execution runs, and no one is told."""
    bench.wait("ghost", lease_ms=LONGEST_LEASE_MS)
    gone = FakeWorkflows(wakes=Delivery.GONE, runs=bench.describe)
    bench.store(workflows=gone).release(release("holder"))
    assert bench.holders() == ["ghost"]
    bench.clock.advance(SOON_SECONDS)
    return not isinstance(bench.store().acquire(acquire("ben")), Grant)


def test_a_grant_of_which_nobody_was_told_ends_soon_whatever_its_lease(bench: Bench) -> None:
    assert not taken_after_a_while(bench)


def test_with_its_own_lease_it_would_last_for_twelve_hours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants, "UNDELIVERED_MS", LONGEST_LEASE_MS)
    assert taken_after_a_while(bench)
