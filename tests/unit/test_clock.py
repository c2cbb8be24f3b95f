"""Times as they are shown, and the clock of this machine."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlock.clock import SystemClock
from fairlock.protocol.schema import ttl_seconds
from fairlock.text import iso_utc
from fairlock.wire.rules import LATEST_EPOCH_MS


@pytest.mark.parametrize(
    ("epoch_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_896_081_300_250, "2030-01-31T09:15:00.250Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
        (LATEST_EPOCH_MS, "9999-12-31T23:59:59.999Z"),
        (10**40, "9999-12-31T23:59:59.999Z"),
        (-1, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_iso_8601_in_utc_with_milliseconds(epoch_ms: int, shown: str) -> None:
    assert iso_utc(epoch_ms) == shown


@given(st.integers(min_value=0, max_value=LATEST_EPOCH_MS))
def test_a_time_that_is_shown_can_be_read_back_exactly(epoch_ms: int) -> None:
    read = datetime.fromisoformat(iso_utc(epoch_ms))
    assert round(read.timestamp() * 1000) == epoch_ms


def test_the_system_clock_tells_epoch_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    assert before <= SystemClock().wall_ms() <= time.time_ns() // 1_000_000


def test_the_system_clock_waits_on_its_monotonic_clock() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.wait(0.01)
    assert 0.01 <= clock.monotonic() - before < 1


def test_the_ttl_is_48_hours_ahead_in_epoch_seconds() -> None:
    assert ttl_seconds(1_900_000_000_999) == 1_900_000_000 + 48 * 3600
