"""Copies of writes, and calls, that come after everything else change nothing that matters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from fairlock.protocol import ceiling, claims, grants, leaving, waiters
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.protocol.schema import RELEASED_AT
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.wire.requests import parse_acquire
from tests.support import LOCK, owner
from tests.support.faulty_table import Fault, FaultyTable, meanwhile
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


# An invocation that comes late is told to ask again, if its caller has said when it called. A copy
# of a write cannot look and write again; a function that is invoked late is code, and does.

YEAR_9999_MS: Final = 253_402_300_799_999
Event = dict[str, Any]


def event(bench: Bench, name: str, *, behind_ms: int = 0, **fields: Any) -> Event:  # noqa: ANN401 - any of the fields
    """A call that is made now, by a clock that is this much behind."""
    made = {"lock_name": LOCK, "owner_id": owner(name), "owner_name": name}
    return {**made, "entered_at_ms": bench.clock.wall_ms() - behind_ms, **fields}


def invoke(bench: Bench, request: Event, client: object = None) -> Grant | Queued | Refusal:
    return bench.store(client).acquire(parse_acquire(dict(request)))


def requests_of_grant(bench: Bench, request: Event) -> list[str]:
    client, _ = bench.counting()
    assert isinstance(invoke(bench, request, client), Grant)
    return client.calls


def is_told_to_ask_again(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.reason is RefusalReason.ASK_AGAIN


def hold_and_leave(bench: Bench, request: Event) -> None:
    """The call is sent twice; the second sending is granted and its owner releases."""
    assert isinstance(invoke(bench, request), Grant)
    bench.clock.advance(3)
    bench.release(request["owner_name"])


def of_a_free_lock(bench: Bench, **fields: Any) -> Event:  # noqa: ANN401 - any of the fields
    request = event(bench, "anna", **fields)
    hold_and_leave(bench, request)
    bench.pass_through()
    return request


def of_a_second_permit(bench: Bench) -> Event:
    request = event(bench, "anna", limit=2)
    bench.ask("zoe", limit=2)
    hold_and_leave(bench, request)
    bench.ask("passing", limit=2)
    bench.release("passing")
    return request


def of_a_dead_holder(bench: Bench) -> Event:
    request = of_a_free_lock(bench)
    bench.ask("zoe", lease_ms=1_000)
    bench.clock.advance(20)
    return request


def of_a_busy_lock(bench: Bench) -> Event:
    request = of_a_free_lock(bench, queue=True)
    bench.ask("zoe")
    return request


def of_an_execution(bench: Bench) -> Event:
    """Released by force: its claim stands, so that alone would not tell."""
    request = of_a_free_lock(bench, execution_arn=RUN)
    for item in bench.client.items.values():
        for mark in ("done", "ended"):
            item.pop(mark, None)
    return request


Scene = Callable[[Bench], Event]
GRANTED_IF_BLIND: Final = [of_a_free_lock, of_a_second_permit, of_a_dead_holder]


@pytest.mark.parametrize("call", [*GRANTED_IF_BLIND, of_a_busy_lock, of_an_execution])
def test_a_late_call_is_told_to_ask_again_and_changes_nothing(bench: Bench, call: Scene) -> None:
    late = call(bench)
    before = bench.items("LOCK#")
    assert is_told_to_ask_again(invoke(bench, late))
    assert bench.items("LOCK#") == before


@pytest.mark.parametrize("call", GRANTED_IF_BLIND)
def test_a_caller_that_does_not_tell_its_time_is_unprotected(bench: Bench, call: Scene) -> None:
    late = call(bench)
    late.pop("entered_at_ms")
    assert isinstance(invoke(bench, late), Grant)


def test_an_invocation_that_stalls_between_its_two_writes_is_told_to_ask_again(
    bench: Bench,
) -> None:
    """The first is refused, because a holder names another limit; then its acquisition ends."""
    bench.ask("zoe", limit=3)
    request = event(bench, "anna", limit=2)

    def others_act() -> None:
        hold_and_leave(bench, request)
        bench.ask("passing", limit=2)
        bench.release("passing")

    client = FaultyTable(bench.client, meanwhile(2, others_act))
    assert is_told_to_ask_again(invoke(bench, request, client))
    assert (bench.holders(), bench.waiters(), len(client.calls)) == (["zoe"], [], 2)


def test_a_lock_that_is_held_is_refused_as_ever(bench: Bench) -> None:
    """Nothing would be written for it, and the answer tells who holds."""
    request = of_a_free_lock(bench)
    bench.ask("zoe")
    answer = invoke(bench, request)
    assert isinstance(answer, Refusal)
    assert (answer.reason, [holder.owner_name for holder in answer.holders]) == ("HELD", ["zoe"])


def test_a_call_whose_answer_was_lost_is_granted_again_however_old_it_is(bench: Bench) -> None:
    bench.pass_through()
    request = event(bench, "anna", limit=2)
    first = invoke(bench, request)
    assert isinstance(first, Grant)
    bench.clock.advance(5)
    bench.ask("zoe", limit=2)
    bench.release("zoe")
    assert invoke(bench, request) == replace(first, repeated=True)


@pytest.mark.parametrize("slow_ms", [5_000, 0], ids=["a slow clock", "a cold start"])
def test_a_call_from_before_a_release_costs_one_call_more_that_sends_the_time_back(
    bench: Bench, slow_ms: int
) -> None:
    request = event(bench, "anna", behind_ms=slow_ms)
    bench.clock.advance(1.5)
    bench.pass_through()
    refused = invoke(bench, request)
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.retry_after_seconds) == ("ASK_AGAIN", 1)
    assert refused.called_at_ms == bench.clock.wall_ms()
    bench.clock.advance(refused.retry_after_seconds)
    again = event(bench, "anna", entered_at_ms=refused.called_at_ms)
    assert requests_of_grant(bench, again) == ["update_item"]


@pytest.mark.parametrize("ahead_ms", [1_500, 240_000, None], ids=["1.5 s", "4 min", "year 9999"])
def test_a_time_in_the_future_is_answered_with_the_right_one_without_a_request(
    bench: Bench, ahead_ms: int | None
) -> None:
    made_at_ms = YEAR_9999_MS if ahead_ms is None else bench.clock.wall_ms() + ahead_ms
    client, _ = bench.counting()
    answer = invoke(bench, event(bench, "anna", entered_at_ms=made_at_ms, queue=True), client)
    assert is_told_to_ask_again(answer)
    assert client.calls == []
    again = event(bench, "anna", entered_at_ms=getattr(answer, "called_at_ms", None))
    assert isinstance(invoke(bench, again), Grant)


def test_on_ordinary_ways_the_time_costs_no_request(bench: Bench) -> None:
    """Right after a release, too: the call was made before it, and within the slack."""
    bench.ask("zoe")
    bench.clock.advance(5)
    request = event(bench, "anna")
    bench.release("zoe")
    bench.clock.advance(0.4)
    assert requests_of_grant(bench, request) == ["update_item"]
    bench.release("anna")
    by_a_clock_that_is_ahead = event(bench, "ben", behind_ms=-900)
    assert requests_of_grant(bench, by_a_clock_that_is_ahead) == ["update_item"]


def test_a_departure_that_was_marked_in_the_future_refuses_no_call_made_just_now(
    bench: Bench,
) -> None:
    """By a wrong clock; the next owner pays its second request, as a client does."""
    bench.pass_through()
    item = bench.client.items[f"LOCK#{LOCK}", "STATE"]
    item[RELEASED_AT] = {"N": str(bench.clock.wall_ms() + 240_000)}
    assert requests_of_grant(bench, event(bench, "anna")) == ["update_item", "update_item"]


def test_two_calls_of_a_waiter_that_are_under_way_get_one_place(bench: Bench) -> None:
    """The late one has read the queue before the other joined, and gave up: no one leaves it."""
    bench.ask("zoe")
    late = event(bench, "anna", queue=True)
    bench.clock.advance(2)
    again = event(bench, "anna", queue=True)

    def others_act() -> None:
        bench.clock.advance(0.1)
        assert isinstance(invoke(bench, again), Queued)

    between = FaultyTable(bench.client, meanwhile(3, others_act))
    invoke(bench, late, between)
    between.end_plan()
    assert bench.waiters() == ["anna"]
