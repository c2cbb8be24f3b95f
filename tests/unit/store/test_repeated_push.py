"""A grant that is told again may be older than it seems: it is renewed if half of it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlock.protocol.outcomes import AlreadyHolder, Grant, judge
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.store_bench import Bench

LEASE_MS = 60_000
SLOW_MS = 90_000


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def told(bench: Bench) -> Grant:
    """Ben asks again, and hears of what he was handed by another caller whose clock is slow."""
    place = {"waits": True, "poll_interval_ms": 5_000}
    bench.store().acquire(acquire("anna", lease_ms=10 * LEASE_MS))
    bench.store().acquire(acquire("ben", **place))
    bench.clock.skew_ms = -SLOW_MS
    bench.store().release(release("anna"))
    bench.clock.skew_ms = 0
    bench.clock.advance(5)
    answer = bench.store().acquire(acquire("ben", **place))
    assert isinstance(answer, Grant)
    return answer


def test_the_end_that_a_slow_clock_has_written_is_corrected_before_anybody_relies_on_it(
    bench: Bench,
) -> None:
    assert told(bench).expires_at_ms == bench.clock.now_ms + LEASE_MS + 1_500


def test_without_that_the_lease_would_be_over_for_others_already(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_fresh(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
        verdict = judge(*args, **kwargs)
        return replace(verdict, is_fresh=True) if isinstance(verdict, AlreadyHolder) else verdict

    monkeypatch.setattr("fairlock.store.acquire.judge", all_fresh)
    assert told(bench).expires_at_ms < bench.clock.now_ms


def test_a_grant_that_is_fresh_costs_nothing_to_tell_again(bench: Bench) -> None:
    client, store = bench.counting()
    first = store.acquire(acquire("anna"))
    bench.clock.advance(LEASE_MS / 2_000 - 1)
    again = store.acquire(acquire("anna"))
    assert isinstance(first, Grant)
    assert again == replace(first, repeated=True)
    assert client.calls == ["update_item"] * 2
