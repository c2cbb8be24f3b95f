"""The documents' tables of locks with many permits: write units, and the rates that follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.permits import units

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("permits", [1, 5, 20, 100])
def test_write_units_and_rates_are_as_the_documents_say(permits: int) -> None:
    counted = units(permits)
    each = [counted[name] for name in ("acquire", "release", "join", "hand_off")]
    rates = [counted[name] for name in ("uncontended_per_second", "queued_per_second")]
    kib = f"{counted['bytes'] / 1024:.1f} KiB"
    size = f"{counted['bytes']} bytes" if counted["bytes"] < 1024 else kib
    assert row(permits, size, *each) in (DOCS / "protocol.md").read_text()
    assert row(permits, f"{counted['bytes']:,}", *rates) in (DOCS / "costs.md").read_text()


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"
