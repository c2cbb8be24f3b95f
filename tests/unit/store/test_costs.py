"""The calculator of docs/costs.md has the counts of the code, and agrees with the page."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlock.clock import AwsClock
from fairlock.protocol.model import ReleaseRequest, SeenLock
from fairlock.protocol.outcomes import Queued
from fairlock.testing import ManualClock
from tests.support import LOCK, acquire, owner, release, store_over
from tests.support.faulty_table import FaultyTable
from tests.support.memory_tables import MeteredTable, guard_request
from tests.support.store_bench import Bench

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


def test_the_page_and_the_calculator_agree() -> None:
    """USD a month by the page's own script, for each form."""
    million = {**NOTHING, "guards": 1_000_000}
    waiting = {**million, "waitingPercent": 100}
    forms = [million, {**waiting, "waitMinutes": 5}, {**waiting, "waitMinutes": 10}]
    program = (SITE / "costs.js").read_text() + CALL
    node = str(ROOT / ".venv" / "bin" / "node")
    command = [node, "-e", program, json.dumps(FIGURES), json.dumps(forms)]
    answer = subprocess.run(command, check=True, capture_output=True, timeout=60)
    plain, waited, longer = json.loads(answer.stdout)
    text = " ".join((ROOT / "docs" / "costs.md").read_text().split())
    found = re.search(
        r"about (\d+) USD per million guarded tasks uncontended, about (\d+) if each of them waits "
        r"for up to five minutes, and (\d+) more for each further five minutes",
        text,
    )
    assert found
    told = [int(figure) for figure in found.groups()]
    assert told == [round(plain), round(waited), round(longer - waited)]


def test_asking_again_takes_as_many_requests_as_the_page_says() -> None:
    """As a guard in the queue does, after each fallback period."""
    page = (ROOT / "docs" / "costs.md").read_text()
    figures = set(re.findall(r"(\d+) more each fallback period of 5 minutes", page))
    client = FaultyTable(MeteredTable())
    store = store_over(client, ManualClock())
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
    store = store_over(table, ManualClock())
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


# Releasing and joining by what a caller has seen: fewer requests, and wrong about nothing.

HAND_OFF = ["transact_write_items"]
ASKING_FIRST = ["query", *HAND_OFF]
JOIN = ["transact_write_items", "update_item"]


def in_queue(bench: Bench, *names: str, **fields: Any) -> SeenLock:  # noqa: ANN401 - of the requests
    """The first holds, the others wait in this order: what a poll sees of it."""
    for name in names:
        bench.ask(name, waits=True, **fields)
        bench.clock.advance(0.001)
    return bench.store().read_lock(LOCK)


def without_the_queue(seen: SeenLock) -> SeenLock:
    return SeenLock(state=seen.state, date_ms=seen.date_ms)


def requests_of_release(bench: Bench, seen: SeenLock) -> list[str]:
    return bench.requests(lambda store: store.release(release("anna"), seen=seen))


def requests_of_join(bench: Bench, seen: SeenLock) -> list[str]:
    carl = acquire("carl", waits=True)
    return bench.requests(lambda store: store.acquire(carl, seen=seen))


def test_a_holder_that_knows_the_next_waiter_hands_over_with_one_request(bench: Bench) -> None:
    seen = in_queue(bench, "anna", "ben", "carl")
    assert [waiter.request.owner_name for waiter in seen.waiters] == ["ben", "carl"]
    assert requests_of_release(bench, seen) == HAND_OFF
    assert (bench.holders(), bench.state.last_released) == (["ben"], owner("anna"))


def test_a_holder_that_knows_that_others_wait_asks_for_them_at_once(bench: Bench) -> None:
    seen = without_the_queue(in_queue(bench, "anna", "ben"))
    assert requests_of_release(bench, seen) == ASKING_FIRST
    assert bench.holders() == ["ben"]


def test_a_waiter_that_has_given_up_since_is_passed_over(bench: Bench) -> None:
    seen = in_queue(bench, "anna", "ben", "carl")
    bench.release("ben", ticket=seen.waiters[0].entered_at_ms)
    assert requests_of_release(bench, seen) == [*HAND_OFF, *ASKING_FIRST]
    assert bench.holders() == ["carl"]


def test_a_waiter_that_was_seen_dead_is_handed_nothing(bench: Bench) -> None:
    """It would hold for its whole lease."""
    bench.ask("anna", lease_ms=3_600_000)
    for name in ("ben", "carl"):
        bench.queue(name, poll_interval_ms=500, waiter_timeout_ms=300_000)
        bench.clock.advance(400 if name == "ben" else 0)
    bench.store().release(release("anna"), seen=bench.store().read_lock(LOCK))
    assert bench.holders() == ["carl"]


def test_beside_other_holders_nothing_is_supposed(bench: Bench) -> None:
    seen = in_queue(bench, "anna", "ben", "carl", limit=2)
    assert requests_of_release(bench, seen) == ["update_item", *ASKING_FIRST]


def test_a_caller_that_knows_that_it_must_wait_joins_at_once(bench: Bench) -> None:
    seen = without_the_queue(in_queue(bench, "anna", "ben"))
    assert requests_of_join(bench, seen) == ["query", *JOIN]
    assert bench.waiters() == ["ben", "carl"]


@pytest.mark.parametrize(
    ("edges", "first"), [(None, "update_item"), ((0, 0), "transact_write_items")]
)
def test_a_caller_whose_clock_was_set_learns_the_time_before_it_joins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, edges: tuple[int, int] | None, first: str
) -> None:
    """By a clock that is ahead its place would come after all who join in the next minutes."""
    seen = in_queue(bench, "anna", "ben")
    monkeypatch.setattr(AwsClock, "edges_ms", lambda _: edges)
    assert requests_of_join(bench, seen)[0] == first
    assert bench.waiters() == ["ben", "carl"]


def test_a_caller_that_knows_the_whole_queue_does_not_count_it(bench: Bench) -> None:
    seen = in_queue(bench, "anna", "ben")
    client, store = bench.counting()
    answer = store.acquire(acquire("carl", waits=True), seen=seen)
    assert isinstance(answer, Queued)
    assert (answer.position, client.calls) == (2, JOIN)
    assert answer.seen is not None
    known, stored = answer.seen.waiters, bench.store().read_lock(LOCK).waiters
    assert [waiter.request.owner_name for waiter in known] == ["ben", "carl"]
    assert [(w.key, w.expires_at_ms) for w in known] == [(w.key, w.expires_at_ms) for w in stored]


def test_two_oldest_waiters_are_not_known_to_be_all(bench: Bench) -> None:
    assert in_queue(bench, "anna", "ben").is_whole
    assert not in_queue(bench, "carl").is_whole


@pytest.mark.parametrize("change", [{"contended": False}, {"held": 0, "holders": ()}])
def test_what_was_seen_of_a_lock_without_a_queue_saves_nothing(
    bench: Bench, change: dict[str, object]
) -> None:
    in_queue(bench, "anna", "ben")
    before = replace(bench.state, **change)  # type: ignore[arg-type]  # fields of a state
    assert requests_of_join(bench, SeenLock(state=before, is_whole=True))[0] == "update_item"
