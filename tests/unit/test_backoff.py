"""The advice when to ask again: grows with the wait, jittered, whole seconds, not past a lease."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlock import backoff
from fairlock.backoff import advise_retry_seconds, doubled

NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
FRACTIONS = st.floats(min_value=0, max_value=1, exclude_max=True)


def advice(*, waited_ms: int | None, ends_in_ms: Sequence[int] = (), fraction: float = 0.5) -> int:
    return advise_retry_seconds(
        now_ms=NOW_MS,
        waiting_since_ms=None if waited_ms is None else NOW_MS - waited_ms,
        lease_ends_ms=[NOW_MS + ends_in for ends_in in ends_in_ms],
        random=lambda: fraction,
    )


@pytest.mark.parametrize(
    ("waited_seconds", "seconds"),
    [(0, 1), (5, 1), (10, 2), (60, 12), (250, 50), (300, 60), (3600, 60), (86_400, 60)],
)
def test_the_advice_is_a_fifth_of_the_wait_so_far_from_a_second_to_a_minute(
    waited_seconds: int, seconds: int
) -> None:
    assert advice(waited_ms=waited_seconds * 1000) == seconds


def test_a_first_try_is_advised_like_one_that_has_not_waited() -> None:
    assert advice(waited_ms=None) == advice(waited_ms=0) == 1


def test_an_entry_at_the_beginning_of_time_is_a_long_wait_and_no_missing_one() -> None:
    assert advice(waited_ms=NOW_MS) == 60


def test_a_caller_whose_clock_is_ahead_counts_as_one_that_has_not_waited() -> None:
    assert advice(waited_ms=-HOUR_MS) == 1


@pytest.mark.parametrize(("fraction", "seconds"), [(0, 30), (0.5, 60), (0.999_999, 90)])
def test_jitter_takes_away_or_adds_up_to_a_half(fraction: float, seconds: int) -> None:
    assert advice(waited_ms=HOUR_MS, fraction=fraction) == seconds


@given(
    waited_ms=st.integers(min_value=-HOUR_MS, max_value=10**12),
    ends_in_ms=st.lists(st.integers(min_value=-HOUR_MS, max_value=12 * HOUR_MS)),
    fraction=FRACTIONS,
)
def test_the_advice_is_whole_seconds_from_one_to_ninety(
    waited_ms: int, ends_in_ms: list[int], fraction: float
) -> None:
    seconds = advice(waited_ms=waited_ms, ends_in_ms=ends_in_ms, fraction=fraction)
    assert type(seconds) is int
    assert 1 <= seconds <= 90


@given(ends_in_ms=st.integers(min_value=1, max_value=12 * HOUR_MS), fraction=FRACTIONS)
def test_the_advice_is_never_two_seconds_past_the_end_of_a_lease(
    ends_in_ms: int, fraction: float
) -> None:
    """Up to a second of jitter, then rounded up; but at least a fiftieth of the wait so far."""
    seconds = advice(waited_ms=10 * MINUTE_MS, ends_in_ms=[ends_in_ms], fraction=fraction)
    assert seconds * 1000 < max(ends_in_ms, 12_000) + 2000


def test_of_several_leases_the_one_that_ends_next_counts() -> None:
    ends_in_ms = [40_000, 7_000, 20_000, -5_000]
    assert advice(waited_ms=5 * MINUTE_MS, ends_in_ms=ends_in_ms, fraction=0) == 7


def test_leases_that_are_over_already_do_not_shorten_the_advice() -> None:
    assert advice(waited_ms=HOUR_MS, ends_in_ms=[-1, -HOUR_MS, 0]) == 60


def test_callers_refused_together_are_spread_over_the_seconds_after_the_jitter() -> None:
    fractions = [i / 1000 for i in range(1000)]
    seen = {advice(waited_ms=HOUR_MS, fraction=fraction) for fraction in fractions}
    assert seen == set(range(30, 91))


def polls_within(wait_ms: int, source: random.Random, ends_in_ms: Sequence[int] = ()) -> int:
    waited_ms = polls = 0
    while waited_ms < wait_ms:
        polls += 1
        seconds = advice(waited_ms=waited_ms, ends_in_ms=ends_in_ms, fraction=source.random())
        waited_ms += 1000 * seconds
    return polls


def test_a_day_of_polling_fits_into_an_executions_history_whatever_the_lease() -> None:
    """At nine events a poll, a history of 25,000 events ends at the 2,777th."""
    source = random.Random(1)  # noqa: S311 - jitter, no secret
    for lease_ends_in_ms in (1, 1_000, 6_000, 60_000):
        assert polls_within(24 * HOUR_MS, source, [lease_ends_in_ms]) < 2_500


def test_an_hour_of_waiting_costs_under_a_hundred_polls() -> None:
    counts = [polls_within(HOUR_MS, random.Random(seed)) for seed in range(50)]  # noqa: S311 - jitter, no secret
    assert 60 < min(counts) <= max(counts) < 100


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_the_pause_of_an_outage_of_hours_is_the_longest_one(
    monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    assert [doubled(0.1, times, longest=1) for times in range(5)] == [0.1, 0.2, 0.4, 0.8, 1]
    if protected:
        assert doubled(0.1, 100_000, longest=1) == 1
    else:
        monkeypatch.setattr(backoff, "_MOST_DOUBLINGS", 100_000)
        with pytest.raises(OverflowError):
            doubled(0.1, 100_000, longest=1)
