"""The figures of docs/costs.md are those of the code."""

from __future__ import annotations

import re

from fairlock.client.arguments import LONGEST_WAIT_SECONDS
from fairlock.protocol.waiters import (
    MOST_PAGES_READ,
    MOST_PLACES_OF_AN_EXECUTION,
    MOST_WAITERS,
)
from fairlock.wire import rules
from tests.support.documents import ROOT

PAGE = (ROOT / "docs" / "costs.md").read_text()
UNITS_A_SECOND = 1000


def row(name: str) -> str:
    """The limit of this name."""
    [found] = re.findall(rf"^\| {re.escape(name)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return str(found)


def test_the_limits_of_the_page_are_those_of_the_rules() -> None:
    assert f"1 to {rules.LONGEST_LOCK_NAME_BYTES} bytes" in row("lock name")
    assert f"{rules.LONGEST_OWNER_NAME} characters" in row("`owner_name`")
    assert f"{rules.LONGEST_OWNER_NAME_BYTES:,} bytes" in row("`owner_name`")
    assert f"{rules.LARGEST_DATA_BYTES // 1024} KiB" in row("`data`")
    assert f"1 to {rules.HIGHEST_LIMIT};" in row("permits of a lock")
    assert f"1 s to {rules.LONGEST_LEASE_SECONDS // 3600} h" in row("lease")
    assert f"{MOST_WAITERS:,}; or {MOST_PAGES_READ} MB" in row("waiters of a lock")
    assert row("waiters of one execution") == f"{MOST_PLACES_OF_AN_EXECUTION} in a queue"
    assert f"{rules.LONGEST_PERIOD_SECONDS // 86_400} days" in row("rate of a pace")
    assert f"{rules.MOST_A_SECOND} a second" in row("rate of a pace")
    assert row("wait for a slot of a pace") == f"{rules.LONGEST_PACE_WAIT_SECONDS // 86_400} days"
    assert row("wait of a Python client") == f"{LONGEST_WAIT_SECONDS // 86_400} days"


def test_the_rates_of_the_page_follow_from_the_units_that_the_protocol_counts() -> None:
    counted = re.findall(
        r"^\| (\d+) \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$",
        (ROOT / "docs" / "protocol.md").read_text(),
        re.MULTILINE,
    )
    [told] = re.findall(
        r"to \[(\d+) guards a second\]\([^)]+\), or to (\d+) if all wait\. "
        r"If 20 permits are in use, it is (\d+) or (\d+), and if 100 are, (\d+) or (\d+)\.",
        " ".join(PAGE.split()),
    )
    rates: dict[str, tuple[int, int]] = {}
    for permits, *units in counted:
        acquire, release, join, hand_off = map(int, units)
        alone, waiting = acquire + release, join + hand_off
        rates[permits] = UNITS_A_SECOND // alone, UNITS_A_SECOND // waiting
    assert [*map(int, told)] == [*rates["1"], *rates["20"], *rates["100"]]
