"""A copy of a write that lands after everything else changes nothing, or nothing that matters."""

from __future__ import annotations

import inspect
from typing import Final

import pytest

from fairlock.protocol import ceiling, claims, grants, leaving, waiters
from fairlock.protocol.outcomes import Refusal
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support.faulty_table import Fault, meanwhile
from tests.support.late_claims import fence_of_a_redriven_execution, removal_of_a_claim, stages
from tests.support.late_copies import (
    CASES,
    LateCopy,
    confirmation_of_a_waiter_that_left,
    departure_of_a_waiter_of_the_dead,
    passes,
)
from tests.support.store_bench import RUN, Bench

HARMLESS: Final = {"confirm_join", "fence_claim", "leave_queue"}
"""Their copies may be written; tests of their own say why that does not matter."""


@pytest.mark.parametrize("copy", CASES, ids=str)
def test_a_late_copy_changes_nothing_and_would_do_harm_without_its_condition(
    bench: Bench, copy: LateCopy
) -> None:
    wire = copy.scene(bench, **copy.variant)
    before = dict(bench.client.items)
    assert not wire.land()
    assert bench.client.items == before
    assert copy.sees(bench) == copy.right
    assert wire.land(without=copy.by)
    assert copy.sees(bench) == copy.wrong


def test_every_write_of_the_protocol_has_a_case() -> None:
    makers = {
        name
        for module in (grants, waiters, leaving, ceiling, claims)
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and any(
            kind in function.__annotations__["return"]
            for kind in ("Update", "Put", "Delete", "Transaction", "Check")
        )
    }
    covered = {maker for copy in CASES for maker in copy.makers.split()}
    assert makers == covered | HARMLESS


def test_a_late_confirmation_costs_the_next_owner_requests_and_nothing_else(bench: Bench) -> None:
    assert confirmation_of_a_waiter_that_left(bench).land()
    bench.grant("ben")
    assert not bench.state.contended


def test_a_late_fence_is_taken_away_by_the_next_heartbeat(bench: Bench) -> None:
    assert fence_of_a_redriven_execution(bench).land()
    assert stages(bench) == ["1"]
    assert bench.beat("anna") is KeepAliveOutcome.RENEWED
    assert ["fenced" in claim for claim in bench.claims()] == [False]
    assert bench.reap(second=True).holders == 0
    assert bench.holders() == ["anna"]


def test_a_late_removal_of_a_claim_leaves_the_heartbeats_of_a_reused_owner_id(bench: Bench) -> None:
    wire = removal_of_a_claim(bench)
    passes(bench, "zoe")
    bench.ask("anna", execution_arn=RUN)
    assert wire.land()
    assert bench.beat("anna") is KeepAliveOutcome.RENEWED


def test_a_late_departure_of_a_dead_waiter_finds_no_one(bench: Bench) -> None:
    """Its claim is fenced, so it never has that place again."""
    assert not departure_of_a_waiter_of_the_dead(bench).land()
    assert bench.waiters() == ["ben"]


@pytest.mark.parametrize("at_once", [True, False], ids=["behind its claim", "before its write"])
def test_a_call_that_stalled_until_its_work_had_ended_is_granted_nothing(
    bench: Bench, *, at_once: bool
) -> None:
    """Its own time is old, so its first write is refused; but code goes on, where a copy cannot."""

    def pass_by() -> None:
        bench.clock.advance(2)
        bench.grant("anna", execution_arn=RUN)
        bench.release("anna", execution_arn=RUN)
        bench.clock.advance(2)
        bench.pass_through()

    stall = Fault(at=1, after=pass_by) if at_once else meanwhile(2, pass_by)
    answer = bench.ask("anna", execution_arn=RUN, over=stall)
    assert isinstance(answer, Refusal)
    assert bench.holders() == []
