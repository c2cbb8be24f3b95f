"""`max_wait` is divided into equal periods that add up to it."""

from __future__ import annotations

import pytest

from fairlock.cdk.guard.service_calls import FallbackPeriods, divide_wait, period_after_restart


@pytest.mark.parametrize("fallback_seconds", [10, 60, 300, 3600])
def test_the_periods_add_up_to_max_wait_within_two_seconds(fallback_seconds: int) -> None:
    step = 3 if fallback_seconds < 3600 else 31  # The longest period tries the most divisions.
    spans = [*range(5, 4000, step), *range(4000, 7 * 86_400, 4977 * step // 3)]
    for max_wait_seconds in spans:
        if max_wait_seconds > fallback_seconds * 2000:
            continue
        periods = divide_wait(max_wait_seconds, fallback_seconds=fallback_seconds)
        assert abs(periods.total_seconds - max_wait_seconds) <= 2, (max_wait_seconds, periods)


@pytest.mark.parametrize("fallback_seconds", [10, 300])
def test_a_waiter_asks_again_within_the_fallback_period_its_pause_included(
    fallback_seconds: int,
) -> None:
    for max_wait_seconds in range(fallback_seconds + 1, 5000, 7):
        periods = divide_wait(max_wait_seconds, fallback_seconds=fallback_seconds)
        assert periods.seconds + periods.pause_seconds <= fallback_seconds


def test_a_wait_shorter_than_the_fallback_is_one_period() -> None:
    assert divide_wait(60, fallback_seconds=300) == FallbackPeriods(
        number=1, seconds=60, pause_seconds=1
    )


def test_half_an_hour_is_six_periods_of_less_than_five_minutes() -> None:
    assert divide_wait(1800, fallback_seconds=300) == FallbackPeriods(
        number=6, seconds=299, pause_seconds=1
    )


@pytest.mark.parametrize(
    ("max_wait_seconds", "fallback_seconds", "seconds"),
    [
        (5, 300, 5),
        (60, 10, 5),
        (1800, 300, 90),
        (86_400, 300, 300),
        (86_400, 10, 86),  # else the events of its periods would fill the history
        (7 * 86_400, 43_200, 30_240),
        (900 * 86_400, 43_200, 43_200),  # the service refuses a longer one
    ],
)
def test_a_period_after_a_restart_is_short_beside_the_wait_but_not_for_the_history(
    max_wait_seconds: int, fallback_seconds: int, seconds: int
) -> None:
    period = period_after_restart(max_wait_seconds, fallback_seconds=fallback_seconds)
    assert period == FallbackPeriods(number=1, seconds=seconds, pause_seconds=1)


def test_a_division_that_misses_is_seen() -> None:
    careless = FallbackPeriods(number=288, seconds=300, pause_seconds=1)
    assert careless.total_seconds - 86_400 == 287
