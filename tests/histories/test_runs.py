"""Histories of clients over a network that fails are linearizable, unless the protocol is wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fairlock.clock import BootClock
from fairlock.testing.fake_table import MemoryTable
from tests.histories.calls import Answer, Call
from tests.histories.faulty_endpoint import Fault, Faults, faulty_endpoint
from tests.histories.memory_backend import WatchedTable, memory_backend
from tests.histories.plans import SMALL
from tests.histories.runs import Plan, check, dynamodb_at, new_client, run_plans
from tests.property.bench import FaultyClient
from tests.property.mutants import MUTANTS

ROUNDS = 5
TRIES = Plan(threads=4, turns=10, held=0.005)
THREE_PERMITS = Plan(threads=5, turns=10, limit=3, held=0.005)


def tokens_that_repeat(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """The next token goes to the owner, and is forgotten."""
    if name != "update_item":
        return request
    count = "#fencing_token = if_not_exists(#fencing_token, :seed)"
    change = request["UpdateExpression"].replace(f"{count} + :one", count)
    return {**request, "UpdateExpression": change}


def renewals_that_move_back(_name: str, request: dict[str, Any]) -> dict[str, Any]:
    """A heartbeat sets the end, whatever it is."""
    condition = request.get("ConditionExpression", "")
    end = "#mine.#h_expires_at_ms <= :expires_at_ms"
    return {**request, "ConditionExpression": condition.replace(end, "attribute_exists(#mine)")}


def limits_that_count_one_by_one(_name: str, request: dict[str, Any]) -> dict[str, Any]:
    """A newcomer asks for its own limit only, and not for that of the holders."""
    condition = request.get("ConditionExpression", "")
    return {**request, "ConditionExpression": condition.replace(" AND #limit = :limit", "")}


READERS_AND_WRITERS = Plan(threads=5, turns=10, held=0.005, readers=0.6)
WRONG = {
    **MUTANTS,
    "a reader comes in beside a writer": limits_that_count_one_by_one,
    "a grant does not count the token": tokens_that_repeat,
}


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
    ],
)
def test_the_history_of_a_wrong_protocol_shows_it(
    mutant: str, plan: Plan, faults: tuple[Fault, ...]
) -> None:
    for seed in range(ROUNDS):
        table = FaultyClient(MemoryTable(), WRONG[mutant])
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
        client = FaultyClient(table, None if protected else renewals_that_move_back)
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
