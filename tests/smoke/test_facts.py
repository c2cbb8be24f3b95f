"""What the cases measure by can show a failure."""

from __future__ import annotations

import pytest

from tests.smoke.facts import most_inside


@pytest.mark.parametrize(
    ("spans", "most"),
    [
        ([(0, 1), (1, 2), (2, 3)], 1),
        ([(0, 3), (1, 2)], 2),
        ([(0, 9), (1, 5), (2, 3), (3, 4)], 3),
    ],
)
def test_spans_that_overlap_are_counted(spans: list[tuple[int, int]], most: int) -> None:
    each = [{"began_ms": began, "ended_ms": ended} for began, ended in spans]
    assert most_inside(each) == most
