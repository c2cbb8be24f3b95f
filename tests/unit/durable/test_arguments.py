"""What `hold` refuses, before anything is asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fairlock.durable.holding import options_of
from fairlock.errors import InvalidRequest
from tests.unit.durable.service import Service

GOOD: dict[str, Any] = {
    "name": "a",
    "limit": 1,
    "lease": timedelta(minutes=1),
    "max_wait": timedelta(minutes=30),
    "data": None,
    "fallback": None,
    "service": Service(),
    "shared": False,
    "max_hold": timedelta(hours=1),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " a"),
        ("name", 7),
        ("limit", 0),
        ("limit", 101),
        ("shared", "yes"),
        ("max_hold", 0),
        ("max_hold", -5),
        ("max_hold", 0.5),
        ("max_hold", float("inf")),
        ("max_hold", "600"),
        ("max_hold", True),
        ("max_hold", timedelta(days=367)),
        ("lease", "60"),
        ("lease", True),
        ("lease", 0.5),
        ("lease", timedelta(milliseconds=1500)),
        ("lease", timedelta(seconds=0)),
        ("lease", timedelta(hours=13)),
        ("max_wait", "30m"),
        ("max_wait", float("nan")),
        ("max_wait", float("inf")),
        ("max_wait", timedelta(seconds=0)),
        ("max_wait", timedelta(days=367)),
        ("data", "text"),
        ("data", {"x": float("nan")}),
        ("fallback", [60]),
        ("fallback", timedelta(seconds=9)),
        ("fallback", timedelta(hours=13)),
    ],
)
def test_an_argument_that_breaks_its_rule_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        options_of(**{**GOOD, field: value})
    assert caught.value.field == field


def test_a_time_is_a_number_of_seconds_or_a_timedelta() -> None:
    given = options_of(**{**GOOD, "lease": 90, "max_wait": 3600, "fallback": 30})
    spans = {name: timedelta(seconds=n) for name, n in (("lease", 90), ("fallback", 30))}
    assert given == options_of(**{**GOOD, **spans, "max_wait": timedelta(hours=1)})
    assert (given.request["lease_seconds"], given.max_wait, given.fallback) == (90, 3600, 30)


@pytest.mark.parametrize(
    ("max_wait", "fallback"),
    [
        (timedelta(seconds=1), 300),
        (timedelta(days=3), 300),
        (timedelta(days=7), 605),
        (timedelta(days=366), 31_623),
        (None, 300),
    ],
)
def test_a_long_wait_has_long_fallback_periods(max_wait: timedelta | None, fallback: int) -> None:
    """An execution may have 3,000 operations, and each period takes two."""
    options = options_of(**{**GOOD, "max_wait": max_wait})
    assert options.fallback == fallback
    assert 2 * (options.max_wait or 0) / options.fallback <= 2_000


def test_fallback_periods_that_are_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="from 605 s to 12 h"):
        options_of(**{**GOOD, "max_wait": timedelta(days=7), "fallback": timedelta(minutes=1)})


def test_it_asks_to_share_only_if_it_is_told_to() -> None:
    assert "shared" not in options_of(**GOOD).request
    assert options_of(**{**GOOD, "shared": True}).request["shared"]
