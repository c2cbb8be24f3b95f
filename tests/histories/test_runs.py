"""Histories of clients over a network that fails are linearizable, unless the protocol is wrong.

`HISTORIES=25 pytest tests/histories/test_runs.py` makes so many rounds, of 750 calls each.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from fairlock.protocol.admission import NO_CEILING
from fairlock.store import acquire
from fairlock.testing.fake_table import MemoryTable
from tests.histories.calls import Answer, Call
from tests.histories.faulty_endpoint import (
    Fault,
    Faults,
    faulty_endpoint,
    memory_backend,
)
from tests.histories.runs import (
    PLANS,
    Plan,
    check,
    new_client,
    run_plans,
)
from tests.property.mutants import MUTANTS
from tests.support.weakened import patched, weak

HISTORIES = int(os.environ.get("HISTORIES", "1"))
ROUNDS = 15
"""On a busy machine, on which calls overlap less, the first ones may show nothing."""
TRIES = Plan(threads=4, turns=10, held=0.005)
THREE_PERMITS = Plan(threads=5, turns=10, limit=3, held=0.005)


BESIDE_AN_OPERATOR = Plan(threads=4, turns=15, held=0.005, ceilings=15)
READERS_AND_WRITERS = Plan(threads=5, turns=10, held=0.005, readers=0.6)
_TOKEN = "#fencing_token = if_not_exists(#fencing_token, :seed)"
WRONG = {
    **MUTANTS,
    "an acquire ignores a ceiling": weak(acquire, "acquire_permit", NO_CEILING),
    # The next token goes to the owner, and is forgotten.
    "a grant does not count the token": weak(
        acquire, "acquire_permit", f"{_TOKEN} + :one", instead=_TOKEN
    ),
}


def histories(plans: Mapping[str, Plan], faults: Faults) -> dict[str, list[Call]]:
    """Of two clients. One sends each request only once."""
    with faulty_endpoint(memory_backend(MemoryTable()), faults) as url:
        clients = [new_client(url, tries=tries) for tries in (3, 1)]
        try:
            return run_plans(clients, plans, seed=faults.seed)
        finally:
            for client in clients:
                client.close()


@pytest.mark.parametrize("seed", range(11, 11 + HISTORIES))
def test_histories_over_a_network_that_fails_are_linearizable(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    began, spent = time.monotonic(), time.process_time()
    faults = Faults(share=0.08, seed=seed)
    found = histories(PLANS, faults)
    violations = {name: check(history, PLANS[name]) for name, history in found.items()}
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
        ("the first write ignores the limit in force", READERS_AND_WRITERS, ()),
        ("an acquire ignores a ceiling", BESIDE_AN_OPERATOR, ()),
    ],
)
def test_the_history_of_a_wrong_protocol_shows_it(
    mutant: str, plan: Plan, faults: tuple[Fault, ...]
) -> None:
    for seed in range(ROUNDS):
        met = Faults(share=0.3 if faults else 0.0, seed=seed, kinds=faults or tuple(Fault))
        with patched([WRONG[mutant]]):
            [history] = histories({"control": plan}, met).values()
        if check(history, plan) is not None:
            return
    pytest.fail(f"not found in {ROUNDS} histories")
