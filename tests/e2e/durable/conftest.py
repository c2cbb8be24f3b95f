"""A lock of its own for each test, and the figures that are told at the end."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.durable.executions import DurableLock

Tell = Callable[[str, Sequence[float]], None]


@pytest.fixture
def lock(deployment: Deployment, tmp_path: Path) -> DurableLock:
    return DurableLock(deployment, tmp_path)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Tell:
    """For the summary at the end of the run, see `tests/conftest.py`."""

    def tell(what: str, seconds: Sequence[float]) -> None:
        ordered = sorted(seconds)
        p95 = ordered[round(0.95 * (len(ordered) - 1))]
        figures = (
            f"n = {len(ordered)}, p50 {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, "
            f"max {ordered[-1]:.2f} s"
        )
        record_property("figures", f"durable functions, {what}: {figures}")

    return tell
