"""Histories of clients over a network that fails are linearizable, unless the protocol is wrong."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import pytest

from fairlock.clock import BootClock
from fairlock.protocol.pace import LEAST_SLOT_US, interval_us
from fairlock.testing.fake_table import MemoryTable
from tests.histories.calls import Answer, Call
from tests.histories.faulty_endpoint import (
    Fault,
    Faults,
    WatchedTable,
    faulty_endpoint,
    memory_backend,
)
from tests.histories.runs import (
    RATE,
    SMALL,
    Plan,
    check,
    dynamodb_at,
    new_client,
    processes,
    run_plans,
)
from tests.property.mutants import MUTANTS, MutatedTable, in_change, in_condition

ROUNDS = 5
TRIES = Plan(threads=4, turns=10, held=0.005)
THREE_PERMITS = Plan(threads=5, turns=10, limit=3, held=0.005)


BESIDE_AN_OPERATOR = Plan(threads=4, turns=15, held=0.005, ceilings=15)
READERS_AND_WRITERS = Plan(threads=5, turns=10, held=0.005, readers=0.6)
WRONG = {
    **MUTANTS,
    "a reader comes in beside a writer": in_condition(r" AND #limit = :limit"),
    "an acquire ignores a ceiling": in_condition(
        r"attribute_not_exists\(#ceiling\)",
        "(attribute_not_exists(#ceiling) OR attribute_exists(#ceiling))",
    ),
    # The next token goes to the owner, and is forgotten.
    "a grant does not count the token": in_change(
        r"(#fencing_token = if_not_exists\(#fencing_token, :seed\)) \+ :one", r"\1"
    ),
}
RENEWALS_THAT_MOVE_BACK = in_condition(
    r"#mine\.#h_expires_at_ms <= :expires_at_ms", "attribute_exists(#mine)"
)


@dataclass(frozen=True)
class ClockAhead(BootClock):
    """A wall clock that is wrong by some seconds."""

    seconds: float

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self.seconds * 1000)


def histories(
    table: Any,  # noqa: ANN401 - a MemoryTable or what wraps one
    plans: Mapping[str, Plan],
    faults: Faults,
    *,
    ahead: float = 0,
) -> dict[str, list[Call]]:
    """Of two clients. One sends each request only once, and its clock may be wrong."""
    with faulty_endpoint(memory_backend(table), faults) as url:
        right, wrong = BootClock(), ClockAhead(ahead)
        clients = [
            new_client(dynamodb_at(url, tries=tries), "locks", clock=clock)
            for tries, clock in ((3, right), (1, wrong))
        ]
        try:
            return run_plans(clients, plans, seed=faults.seed)
        finally:
            for client in clients:
                client.close()


def test_histories_over_a_network_that_fails_are_linearizable(
    record_property: Callable[[str, object], None],
) -> None:
    began, spent = time.monotonic(), time.process_time()
    faults = Faults(share=0.08, seed=11)
    found = histories(MemoryTable(), SMALL, faults)
    violations = {name: check(history, SMALL[name]) for name, history in found.items()}
    assert set(violations.values()) == {None}, violations
    answers = Counter(call.answer for history in found.values() for call in history)
    assert all(answers[answer] for answer in Answer), answers
    assert len(faults.met) == len(Fault), faults.met
    figures = f"histories: {answers.total()} calls, {faults.met.total()} faults"
    took = f"{time.monotonic() - began:.1f} s, {time.process_time() - spent:.1f} s of CPU"
    record_property("figures", f"{figures}, {took}")


@pytest.mark.parametrize(
    ("mutant", "plan", "faults"),
    [
        ("the limit is compared with <=", TRIES, ()),
        ("the limit is compared with <=", THREE_PERMITS, ()),
        ("a grant does not count the token", TRIES, ()),
        ("a release does not count", TRIES, ()),
        ("a holder may acquire again", THREE_PERMITS, (Fault.LOST_REPLY,)),
        ("a reader comes in beside a writer", READERS_AND_WRITERS, ()),
        ("an acquire ignores a ceiling", BESIDE_AN_OPERATOR, ()),
    ],
)
def test_the_history_of_a_wrong_protocol_shows_it(
    mutant: str, plan: Plan, faults: tuple[Fault, ...]
) -> None:
    for seed in range(ROUNDS):
        table = MutatedTable(MemoryTable(), WRONG[mutant])
        met = Faults(share=0.3 if faults else 0.0, seed=seed, kinds=faults or tuple(Fault))
        [history] = histories(table, {"control": plan}, met).values()
        assert table.mutated
        if check(history, plan) is not None:
            return
    pytest.fail(f"not found in {ROUNDS} histories")


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_a_heartbeat_that_was_given_up_never_moves_the_end_of_a_lease_back(
    monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    monkeypatch.setattr("tests.histories.faulty_endpoint._GIVEN_UP_SECONDS", 0.05)
    plan = Plan(threads=1, turns=1, lease=20, beats=25)
    for seed in range(1 if protected else ROUNDS):
        table = WatchedTable()
        client = table if protected else MutatedTable(table, RENEWALS_THAT_MOVE_BACK)
        held_back = Faults(share=0.2, seed=seed, kinds=(Fault.HELD_BACK,), latest=2)
        [history] = histories(client, {"beats": plan}, held_back).values()
        assert held_back.landed
        if table.moved_back:
            break
    assert bool(table.moved_back) is not protected
    assert check(history, plan) is None or not protected


@pytest.mark.parametrize("ahead", [0, 60])
def test_a_clock_that_is_a_minute_ahead_breaks_takeovers_by_the_stored_end(ahead: int) -> None:
    plan = Plan(threads=4, turns=6, lease=10, held=0.05)
    violations = []
    for seed in range(ROUNDS if ahead else 1):
        faults = Faults(share=0, seed=seed)
        [history] = histories(MemoryTable(), {"control": plan}, faults, ahead=ahead).values()
        violations += [check(history, plan)]
        if any(violations):
            break
    assert any(violations) == bool(ahead)


# Real processes take turns at one pace.
#
# `PACE_RESERVATIONS=1000 PACE_PROCESSES=20 pytest tests/histories/test_runs.py` prints the figures.

RESERVATIONS = int(os.environ.get("PACE_RESERVATIONS", "1000"))
FLEET = int(os.environ.get("PACE_PROCESSES", "20"))
_SHARES = 3


def test_slots_of_three_processes_are_an_interval_apart_in_the_order_of_reservation(
    record_property: Callable[[str, object], None],
) -> None:
    each = -(-RESERVATIONS // _SHARES)
    with processes(_SHARES) as fleet:
        reserved = fleet.reserve(each)
    first, *gaps = [b.begins_us - a.begins_us for a, b in pairwise(reserved)]
    assert len(reserved) == each * _SHARES
    # The first one found no other, so AWS's time is known to an edge only.
    assert interval_us(*RATE) <= first <= interval_us(*RATE) + LEAST_SLOT_US
    assert set(gaps) == {interval_us(*RATE)}
    latest = accumulate((one.began for one in reserved), max)
    assert all(one.ended >= began for one, began in zip(reserved, latest, strict=True)), (
        "a slot went to a caller that asked after another had its later one"
    )
    # Each process reads the time once, and finds by a refused write that others came before.
    most = len(reserved) + 2 * _SHARES
    assert len(reserved) < fleet.network.requests <= most
    text = (
        f"{len(reserved)} reservations by {_SHARES} processes: all gaps {gaps[0] / 1e6:g} s but "
        f"the first, {first / 1e6:.2f} s; in order; {fleet.network.requests} requests"
    )
    record_property("figures", text)


def test_once_an_hour_one_process_of_a_fleet_runs(
    record_property: Callable[[str, object], None],
) -> None:
    with processes(FLEET) as fleet:
        assert sum(fleet.run_hourly()) == 1
    requests = fleet.network.requests / FLEET
    text = f"once an hour, {FLEET} processes at one moment: one ran; {requests:.1f} requests each"
    record_property("figures", text)
