"""The calculator of docs/costs.md has the counts of the code, and agrees with the page."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlock.protocol.model import ReleaseRequest
from tests.support import FakeClock, store_over
from tests.support.capacity import MeteredTable, guard_request
from tests.support.faulty_table import FaultyTable

ROOT = Path(__file__).resolve().parents[3]
SITE = ROOT / "docs" / "site"
FIGURES: dict[str, dict[str, float]] = json.loads((SITE / "costs.json").read_text())
LONGEST_SHORT_TOKEN = 680
NOTHING = {
    "guards": 0,
    "waitingPercent": 0,
    "waitMinutes": 0,
    "fallbackMinutes": 5,
    "longTokens": False,
    "heldSeconds": 0,
    "keepAliveSeconds": 0,
    "clientLocks": 0,
    "clientHeldSeconds": 0,
    "clientLease": 60,
}
CALL = """
const asked = JSON.parse(process.argv[2]);
const costs = asked.map((one) => monthlyCosts(JSON.parse(process.argv[1]), one));
console.log(JSON.stringify(costs.map((kinds) => Object.values(kinds).reduce((a, b) => a + b))));
"""


def computed(*asked: dict[str, Any], figures: dict[str, Any] = FIGURES) -> list[float]:
    """USD a month by the page's own script, for each form."""
    node = ROOT / ".venv" / "bin" / "node"
    forms = [{**NOTHING, **one} for one in asked]
    script = (SITE / "costs.js").read_text() + CALL
    answer = subprocess.run(
        [node, "-e", script, json.dumps(figures), json.dumps(forms)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return list(json.loads(answer.stdout))


def told_by_the_page() -> list[int]:
    text = " ".join((ROOT / "docs" / "costs.md").read_text().split())
    found = re.search(
        r"about (\d+) USD per million guarded tasks uncontended, about (\d+) if each of them waits "
        r"for up to five minutes, and (\d+) more for each further five minutes",
        text,
    )
    assert found
    return [int(figure) for figure in found.groups()]


def test_the_page_and_the_calculator_agree() -> None:
    million = {"guards": 1_000_000, "waitingPercent": 100}
    plain, waited, longer = computed(
        {"guards": 1_000_000}, {**million, "waitMinutes": 5}, {**million, "waitMinutes": 10}
    )
    assert told_by_the_page() == [round(plain), round(waited), round(longer - waited)]


def test_another_price_would_be_found() -> None:
    """The negative control: a calculator with other figures does not agree with the page."""
    dearer = {**FIGURES, "uncontended": {**FIGURES["uncontended"], "state_transitions": 4}}
    [plain] = computed({"guards": 1_000_000}, figures=dearer)
    assert plain != pytest.approx(told_by_the_page()[0], abs=0.55)


def test_asking_again_takes_as_many_requests_as_the_page_says() -> None:
    """As a guard in the queue does, after each fallback period."""
    page = (ROOT / "docs" / "costs.md").read_text()
    figures = set(re.findall(r"(\d+) more each fallback period of 5 minutes", page))
    client = FaultyTable(MeteredTable())
    store = store_over(client, FakeClock())
    waiter = replace(guard_request(1, 1, waits=True), task_token="t" * LONGEST_SHORT_TOKEN)
    store.acquire(guard_request(3, 1))
    store.acquire(waiter)
    client.calls.clear()
    store.acquire(waiter)
    assert figures == {str(len(client.calls))}


def test_the_script_finds_the_form_and_each_field_of_it() -> None:
    """A heading gets an anchor, which must not be the id of something else."""
    page = (SITE / "costs.html").read_text() + (ROOT / "docs" / "costs.md").read_text()
    assert page.count("<!-- calculator -->") == 1
    anchors = {heading.lower() for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    sought = re.findall(r'getElementById\("([\w-]+)"\)', (SITE / "costs.js").read_text())
    assert {"cost-form", "cost-figures"} == set(sought)
    assert all(page.count(f'id="{name}"') == 1 and name not in anchors for name in sought)
    assert set(re.findall(r'<input name="(\w+)"', page)) == set(NOTHING)
    outputs = set(re.findall(r'<output name="(\w+)"', page))
    assert outputs == {*FIGURES["usd_per_million"], "sum"}


_ROW = re.compile(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", re.MULTILINE)
USD_A_MILLION_DURABLE_OPERATIONS = 8.0
"""Lambda's pricing page, "Durable functions", us-east-1, read in September 2026."""


def tables() -> tuple[list[Any], list[Any]]:
    """The rows of the calculator's table, and those about durable functions."""
    page = (ROOT / "docs" / "costs.md").read_text()
    counted, _, durable = page.partition("## Durable functions")
    return _ROW.findall(counted), _ROW.findall(durable)


def test_the_prices_of_durable_functions_are_those_of_their_parts() -> None:
    """The first row: three steps, two calls, and the writes of an uncontended lock."""
    prices = FIGURES["usd_per_million"]
    _, rows = tables()
    assert len(rows) == 3
    for operations, invocations, writes, usd in rows:
        parts = [
            int(operations) * USD_A_MILLION_DURABLE_OPERATIONS,
            int(invocations) * prices["invocations"],
            int(writes) * prices["write_units"],
        ]
        assert float(usd) == pytest.approx(sum(parts), abs=0.006)
    units = FIGURES["uncontended"]["write_units"]
    waited = FIGURES["waited"]["write_units"] - units
    fallback = FIGURES["fallback_period"]["write_units"]
    assert [int(row[2]) for row in rows] == [units, waited, fallback]


def test_the_table_of_the_page_is_what_the_calculator_says() -> None:
    rows, _ = tables()
    kinds = ["uncontended", "waited", "fallback_period"]
    kinds += ["keep_alive_heartbeat", "client", "client_heartbeat"]
    assert len(rows) == len(kinds)
    prices = FIGURES["usd_per_million"]
    for kind, row in zip(kinds, rows, strict=True):
        counts = [FIGURES[kind][name] for name in prices]
        assert [int(count) for count in row[:3]] == counts
        usd = sum(count * prices[name] for count, name in zip(counts, prices, strict=True))
        assert float(row[3]) == pytest.approx(usd, abs=0.006)


@pytest.mark.parametrize(
    ("characters", "suffix"),
    [(LONGEST_SHORT_TOKEN, ""), (LONGEST_SHORT_TOKEN + 10, "_with_long_tokens")],
)
def test_the_write_units_of_the_calculator_are_those_of_the_store(
    characters: int, suffix: str
) -> None:
    table = MeteredTable()
    store = store_over(table, FakeClock())
    alone, first = guard_request(0, 1), guard_request(3, 1)
    waiters = [
        replace(guard_request(n, 1, waits=True), task_token="t" * characters) for n in (1, 2)
    ]
    spent = []

    def count(send: Any, asked: Any) -> None:  # noqa: ANN401 - a method of the store and its request
        before = table.write_units
        send(asked)
        spent.append(table.write_units - before)

    def leave(owner_id: str) -> ReleaseRequest:
        return ReleaseRequest(lock_name=first.lock_name, owner_id=owner_id)

    count(store.acquire, alone)
    count(store.release, leave(alone.owner_id))
    uncontended = sum(spent)
    count(store.acquire, first)
    count(store.acquire, waiters[0])
    joined = spent[-1]
    count(store.acquire, waiters[1])
    count(store.acquire, waiters[0])
    asked_again = spent[-1]
    count(store.release, leave(first.owner_id))
    count(store.release, leave(waiters[0].owner_id))
    handed_over = spent[-1]
    assert uncontended == FIGURES["uncontended"]["write_units"]
    assert joined + handed_over == FIGURES[f"waited{suffix}"]["write_units"]
    assert asked_again == FIGURES[f"fallback_period{suffix}"]["write_units"]
