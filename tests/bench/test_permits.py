"""The protocol's table of locks with many permits: their write units."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.permits import units

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("permits", [1, 5, 20, 100])
def test_write_units_and_rates_are_as_the_protocol_says(permits: int) -> None:
    counted = units(permits)
    each = [counted[name] for name in ("acquire", "release", "join", "hand_off")]
    kib = f"{counted['bytes'] / 1024:.1f} KiB"
    size = f"{counted['bytes']} bytes" if counted["bytes"] < 1024 else kib
    assert row(permits, size, *each) in (DOCS / "protocol.md").read_text()


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"
