"""What `hold` refuses, before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest
from aws_durable_execution_sdk_python.config import Duration

from leasehold.durable.arguments import options_of
from leasehold.errors import InvalidRequest
from tests.unit.durable.service import Service

GOOD: dict[str, Any] = {
    "name": "a",
    "limit": 1,
    "lease": Duration.from_minutes(1),
    "max_wait": Duration.from_minutes(30),
    "data": None,
    "fallback": None,
    "service": Service(),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", " a"),
        ("name", 7),
        ("limit", 0),
        ("limit", 101),
        ("lease", 60),
        ("lease", Duration.from_seconds(0)),
        ("lease", Duration.from_hours(13)),
        ("max_wait", 60),
        ("max_wait", Duration.from_seconds(0)),
        ("max_wait", Duration.from_days(367)),
        ("data", "text"),
        ("data", {"x": float("nan")}),
        ("fallback", 60),
        ("fallback", Duration.from_seconds(9)),
        ("fallback", Duration.from_hours(13)),
    ],
)
def test_an_argument_that_breaks_its_rule_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        options_of(**{**GOOD, field: value})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("max_wait", "fallback"),
    [
        (Duration.from_seconds(1), 300),
        (Duration.from_days(3), 300),
        (Duration.from_days(7), 605),
        (Duration.from_days(366), 31_623),
        (None, 300),
    ],
)
def test_a_long_wait_has_long_fallback_periods(max_wait: Duration | None, fallback: int) -> None:
    """An execution may have 3,000 operations, and each period takes two."""
    options = options_of(**{**GOOD, "max_wait": max_wait})
    assert options.fallback == fallback
    assert 2 * (options.max_wait or 0) / options.fallback <= 2_000


def test_fallback_periods_that_are_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="from 605 s to 12 h"):
        options_of(
            **{**GOOD, "max_wait": Duration.from_days(7), "fallback": Duration.from_minutes(1)}
        )
