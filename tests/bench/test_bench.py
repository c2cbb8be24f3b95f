"""The bench counts what it says, and compares what is alike."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench import contention, permits, report, uncontended, waiting
from bench.bed import spread
from bench.permits import units
from tests.histories.calls import Recorder

# The bench counts what it says: gaps, overlaps, inversions, and sections that were left out.

GRANTS = [(1, 7, 10.0), (2, 8, 10.1), (3, 9, 10.3)]
"""(token, number of the waiter, when granted)"""


def test_a_spread_of_few_values_stays_within_them() -> None:
    assert spread([1.0, 3.0]) == {"number": 2, "median": 2.0, "p95": 3.0, "max": 3.0}
    assert spread([])["median"] is None


@pytest.mark.parametrize(("second_begins", "overlaps"), [(2.5, 0), (1.5, 1)])
def test_sections_that_overlap_are_counted(second_begins: float, overlaps: int) -> None:
    spans = [(second_begins, 4.0), (0.0, 2.0)]
    figures = contention.figures_of(spans, wanted=3)
    assert figures["overlaps"] == overlaps
    assert figures["seconds"] == 4.0
    assert (figures["finished"], figures["wanted"]) == (2, 3)


@pytest.mark.parametrize(("queue", "inversions"), [([7, 8, 9], 0), ([8, 7, 9], 1), ([9, 8, 7], 2)])
def test_grants_out_of_the_queues_order_are_counted(queue: list[int], inversions: int) -> None:
    requests = Counter({"GetItem": 8, "Query": 1, "UpdateItem": 6})
    share = waiting.Share(grants=GRANTS, calls=[], requests=requests)
    figures = waiting.figures_of(Recorder(), "lock", queue, [share], released_at=9.9)
    assert figures["inversions"] == inversions
    assert figures["interval_ms"] == {"number": 3, "median": 100.0, "p95": 200.0, "max": 200.0}
    assert (figures["reads_per_grant"], figures["writes_per_grant"]) == (3.0, 2.0)


@pytest.mark.parametrize(("measured", "met"), [(1.15, 6), (1.16, 3)])
def test_goals_are_counted_and_one_that_was_not_met_is_listed(measured: float, met: int) -> None:
    names = (uncontended.BARE, uncontended.SAME)
    medians = {"median": 1.0, "p95": 1.0, **{f"over {base}": 1.0 for base in names}}
    ours = {**medians, **{f"over {base}": measured for base in names}}
    row = {"wall_ms": medians, "cpu_ms": medians, "waiting_ms": medians}
    compared = dict.fromkeys(names, row) | {uncontended.OURS: {**row, "cpu_ms": ours}}
    figures = dict.fromkeys((uncontended.EMULATOR, uncontended.PLAIN), compared)
    text = report.document({"uncontended": uncontended}, {"uncontended": figures})
    assert f"The run met {met} of 6 goals" in text
    for base in names:
        wanted = f"acquire and release on the embedded AWS, CPU time, over {base}: at most 1.15"
        assert (f"| {wanted} | {measured:g} |" in text) == (measured > 1.15)


def section(*, seconds: float, finished: int = 10) -> dict[str, float]:
    return {"wanted": 10, "finished": finished, "seconds": seconds, "ratio": 1.2}


@pytest.mark.parametrize(
    ("ours", "others", "is_met"),
    [
        (section(seconds=2.0), [section(seconds=2.0), section(seconds=9.0)], True),
        (section(seconds=2.1), [section(seconds=2.0), section(seconds=9.0)], False),
        (section(seconds=2.1), [section(seconds=2.0, finished=9)], True),
        (section(seconds=1.0, finished=9), [section(seconds=2.0)], False),
    ],
)
def test_ours_is_compared_with_others_at_their_best_that_did_all(
    ours: dict[str, float], others: list[dict[str, float]], *, is_met: bool
) -> None:
    row = {"Fairlock": ours, **{f"other {n}": each for n, each in enumerate(others)}}
    stress = {"one client": section(seconds=1), "5 processes": section(seconds=1)}
    figures = {
        "sections": {"2 x 5": row},
        "stress": stress,
        "released_together": {"seconds": 0.3, "threads": 100},
    }
    assert contention.goals(figures)[0].is_met == is_met


def test_a_section_without_figures_is_named_and_has_no_table() -> None:
    counted = {"5": {**permits.units(5), "measured": 50}}
    sections = {"permits": permits, "waiting": waiting}
    text = report.document(sections, {"permits": counted})
    assert "50 with 5 permits" in text
    assert "Not measured in this run: waiting." in text
    assert "## Many waiting clients" not in text


# The documents' tables of locks with many permits: write units.

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("permits", [1, 5, 20, 100])
def test_write_units_are_as_the_protocol_says(permits: int) -> None:
    counted = units(permits)
    each = [counted[name] for name in ("acquire", "release", "join", "hand_off")]
    kib = f"{counted['bytes'] / 1024:.1f} KiB"
    size = f"{counted['bytes']} bytes" if counted["bytes"] < 1024 else kib
    assert row(permits, size, *each) in (DOCS / "protocol.md").read_text()


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"
