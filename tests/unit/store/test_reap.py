"""Reaping: what the end of an execution frees, whatever dies, lands late or is forged around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.claims import Claim, ReapStage, claims_of, mark_ended, write_claim
from fairlock.protocol.outcomes import Reaped
from fairlock.protocol.table_requests import Update
from fairlock.store.reap import AskedTooEarly
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support.faulty_table import FaultyTable, delay, fault, lost_reply, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

DAYS_15 = 15 * 24 * 3600


@pytest.fixture
def bench(dynamodb: object, clock: ManualClock) -> Bench:
    return Bench(dynamodb, clock)


def test_all_iterations_of_a_map_leave_and_none_is_handed_the_lock(bench: Bench) -> None:
    for name in ("anna", "abe", "zita", "zoe"):
        bench.wait(name)
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == Reaped(holders=1, waiters=3)
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], [])


def test_locks_of_other_executions_and_of_direct_callers_are_untouched(bench: Bench) -> None:
    bench.wait("anna", limit=3)
    bench.wait("ben", limit=3, execution_arn=OTHER_RUN)
    bench.wait("carl", limit=3, execution_arn=None)
    bench.end()
    bench.reap()
    bench.reap(second=True)
    assert bench.holders() == ["ben", "carl"]


def test_a_lock_that_was_released_and_granted_to_another_is_untouched(bench: Bench) -> None:
    bench.wait("anna")
    bench.release("anna", execution_arn=RUN)
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    assert bench.reap() == bench.reap(second=True) == Reaped()
    assert bench.holders() == ["ben"]


@pytest.mark.parametrize(
    "passes",
    [(False,), (True,), (False, True), (True, False), (False, False), (True, True, False, True)],
    ids=str,
)
def test_passes_may_come_late_twice_in_any_order(bench: Bench, passes: tuple[bool, ...]) -> None:
    bench.wait("anna")
    bench.wait("zita")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    reaped = [bench.reap(second=second) for second in passes]
    assert reaped == [Reaped(holders=1, waiters=1), *[Reaped()] * (len(passes) - 1)]
    bench.clock.advance(3600)
    assert (bench.reap(), bench.reap(second=True)) == (Reaped(), Reaped())
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


def test_events_of_two_executions_may_come_in_reverse_order(bench: Bench) -> None:
    bench.wait("anna")
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.wait("carl", execution_arn=None)
    bench.end(RUN)
    bench.end(OTHER_RUN)
    assert bench.reap(OTHER_RUN) == Reaped(waiters=1)
    assert bench.reap(RUN) == Reaped(holders=1)
    assert (bench.holders(), bench.pushed) == (["carl"], ["carl"])


def test_without_claims_to_free_nothing_is_asked(bench: Bench) -> None:
    """They are kept after both passes, as long as the execution can be redriven."""
    assert bench.reap() == bench.reap(second=True) == Reaped()
    assert bench.workflows.described == []
    bench.wait("anna")
    bench.bury()
    assert bench.reap(second=True) == Reaped()
    assert len(bench.workflows.described) == 2
    (claim,) = bench.claims()
    assert int(claim["expiry_time"]["N"]) == bench.clock.wall_ms() // 1000 + DAYS_15


def test_an_execution_that_step_functions_has_forgotten_is_over(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    assert bench.reap(redrives=2) == Reaped(holders=1)


def test_if_step_functions_does_not_say_nothing_is_freed_and_the_pass_fails(bench: Bench) -> None:
    bench.wait("anna")
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    with pytest.raises(LockStoreUnavailable, match="did not say"):
        bench.reap()
    assert bench.holders() == ["anna"]


def test_a_waiter_with_a_wider_limit_behind_the_dead_gets_the_free_permit(bench: Bench) -> None:
    bench.wait("ben", execution_arn=OTHER_RUN, limit=2)
    bench.wait("anna")
    bench.wait("carl", execution_arn=OTHER_RUN, limit=2)
    bench.end()
    assert bench.reap() == Reaped(waiters=1)
    assert (bench.holders(), bench.pushed) == (["ben", "carl"], ["carl"])


def test_a_pass_that_has_no_time_left_asks_no_one(bench: Bench) -> None:
    bench.wait("anna")
    bench.end()
    over = RetryBudget(clock=bench.clock, deadline=bench.clock.monotonic())
    client = FaultyTable(bench.client)
    assert bench.reap(client=client, retry_budget=over) == Reaped(complete=False)
    assert (client.calls, bench.workflows.described) == ([], [])


# Messages that are forged, or come too early: the reaper believes Step Functions, not messages.

FORGED: dict[str, dict[str, Any]] = {
    "a first pass": {},
    "a second pass": {"second": True},
    "a first pass after redrives that never were": {"redrives": 7},
    "a second pass after redrives that never were": {"second": True, "redrives": 7},
}


@pytest.fixture
def forged_bench(clock: ManualClock) -> Bench:
    """An execution that runs holds a lock, and waits for another behind a second execution."""
    forged_bench = Bench(MemoryTable(), clock)
    forged_bench.wait("anna")
    forged_bench.wait("ben", lock_name="other", execution_arn=OTHER_RUN)
    forged_bench.wait("zita", lock_name="other")
    return forged_bench


@pytest.mark.parametrize("redrives", [0, 2])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_message_about_a_running_execution_frees_nothing_and_writes_nothing(
    forged_bench: Bench, forged: dict[str, Any], redrives: int
) -> None:
    forged_bench.executions[RUN] = Execution(Liveness.RUNNING, redrives)
    before = forged_bench.items("")
    client = FaultyTable(forged_bench.client)
    message = {**forged, "redrives": redrives + forged.get("redrives", 0)}
    with pytest.raises(AskedTooEarly, match="runs, says Step Functions"):
        forged_bench.reap(client=client, **message)
    assert client.calls == ["query"]
    assert forged_bench.items("") == before


@pytest.mark.parametrize("second", [False, True])
def test_a_forged_message_of_an_earlier_run_frees_nothing_of_a_redriven_execution(
    forged_bench: Bench, *, second: bool
) -> None:
    forged_bench.executions[RUN] = Execution(Liveness.RUNNING, redrives=1)
    before = forged_bench.items("")
    assert forged_bench.reap(second=second) == Reaped()
    assert forged_bench.items("") == before


def ended(bench: Bench, seconds_ago: float) -> None:
    at_ms = bench.clock.wall_ms() - int(seconds_ago * 1000)
    bench.executions[RUN] = Execution(Liveness.OVER, ended_at_ms=at_ms)


@pytest.mark.parametrize(("seconds_ago", "early"), [(0, True), (32.9, True), (33, False)])
def test_a_second_pass_waits_until_no_acquire_of_the_execution_can_be_under_way(
    forged_bench: Bench, seconds_ago: float, *, early: bool
) -> None:
    """35 s, less the 2 s by which clocks may differ."""
    ended(forged_bench, seconds_ago)
    if early:
        with pytest.raises(AskedTooEarly, match="has ended just now"):
            forged_bench.reap(second=True)
    assert forged_bench.reap(second=not early) == Reaped(holders=1, waiters=1)


# What goes wrong around the end of an execution: late calls, releases that die, redrives.


def test_what_a_pass_has_fenced_is_freed_though_the_execution_was_redriven(bench: Bench) -> None:
    """Else the redriven acquisition would wait for one of its own that landed late."""

    def stopped_and_reaped() -> None:
        bench.end()
        bench.reap()
        bench.pass_through()

    bench.ask("anna", execution_arn=RUN, over=meanwhile(2, stopped_and_reaped))
    bench.redrive()
    bench.wait("zita")
    assert bench.reap(second=True) == Reaped(holders=1)
    assert (bench.holders(), bench.pushed) == (["zita"], ["zita"])


def test_an_outdated_second_pass_leaves_the_rest_to_that_of_the_next_event(bench: Bench) -> None:
    """The execution was redriven and has ended again, with an acquire under way."""

    def ended_again() -> None:
        bench.end(redrives=1)
        bench.reap(second=True, redrives=0)
        bench.pass_through()

    bench.ask("anna", execution_arn=RUN, over=meanwhile(2, ended_again))
    assert bench.holders() == ["anna"]
    bench.reap(redrives=1)
    bench.reap(redrives=1, second=True)
    assert bench.holders() == []


def test_a_release_that_died_after_its_mark_is_made_up_for(bench: Bench) -> None:
    bench.wait("anna")
    bench.beat("anna")
    dying = fault(lost_reply(), 2)
    with pytest.raises(LockStoreUnavailable):
        bench.release("anna", execution_arn=RUN, keep_alive=True, over=dying)
    assert bench.holders() == ["anna"]
    bench.end()
    assert bench.reap() == Reaped(holders=1)
    assert bench.holders() == []


# Executions with more claims than one invocation can free, or one page can show.

CLAIMS = 200
WAITERS = 60
SECONDS_A_LOOK = 19.0
MOST_PASSES = 20


def put_claims(
    bench: Bench, number: int, write: Callable[..., Update], *, waits: bool = False
) -> None:
    """So many claims of one execution on a hundred locks."""
    for each in range(number):
        claim = Claim(
            execution_arn=RUN, lock_name=f"lock-{each % 100}", owner_id=f"iteration-{each:06d}"
        )
        bench.store().context.table.update(write(claim, waits=waits, now_ms=bench.clock.wall_ms()))


def reap_pass(bench: Bench, *, second: bool, seconds_a_request: float = 0.05) -> Reaped:
    deadline = bench.clock.monotonic() + SECONDS_A_LOOK
    retry_budget = RetryBudget(clock=bench.clock, deadline=deadline)
    client = delay(seconds_a_request, bench.clock)
    return bench.reap(second=second, client=client, retry_budget=retry_budget)


def looks_until_complete(bench: Bench, *, second: bool) -> list[Reaped]:
    """As the handler does: the same pass again and again, while it is not complete."""
    passes = [reap_pass(bench, second=second)]
    while not passes[-1].complete:
        assert len(passes) < MOST_PASSES
        passes.append(reap_pass(bench, second=second))
    return passes


def test_passes_that_run_out_of_time_are_taken_up_where_they_ended(bench: Bench) -> None:
    put_claims(bench, CLAIMS, write_claim, waits=True)
    names = [f"lock-{number}" for number in range(0, 100, 10)]
    for name in names:
        bench.wait("anna", lock_name=name)
        bench.wait("ben", lock_name=name, execution_arn=OTHER_RUN)
    bench.end()
    first = looks_until_complete(bench, second=False)
    second = looks_until_complete(bench, second=True)
    assert min(len(first), len(second)) > 1
    assert sum(reaped.holders for reaped in first) == len(names)
    assert sum(reaped.holders + reaped.waiters for reaped in second) == 0
    assert [bench.holders(name) for name in names] == [["ben"]] * len(names)
    stages = {claim["fenced"]["N"] for claim in bench.claims() if RUN in claim["pk"]["S"]}
    assert stages == {str(ReapStage.SECOND_PASS_DONE.value)}


def test_no_waiter_is_left_when_the_first_lock_is_released_however_many_passes_that_takes(
    bench: Bench,
) -> None:
    for number in range(WAITERS):
        bench.wait(f"iteration-{number:04d}")
    bench.end()
    while not (reaped := reap_pass(bench, second=False, seconds_a_request=0.2)).holders:
        assert not reaped.complete
        assert bench.holders() == ["iteration-0000"]
    assert (bench.waiters(), bench.pushed) == ([], [])


@pytest.mark.parametrize(("ended", "is_free"), [(True, True), (False, False)])
def test_claims_whose_work_has_ended_do_not_delay_what_is_held(
    bench: Bench, *, ended: bool, is_free: bool
) -> None:
    """A Map of many iterations with keep_alive leaves as many of them; were they like others…"""
    put_claims(bench, WAITERS, mark_ended if ended else write_claim)
    bench.wait("anna")
    bench.end()
    reaped = reap_pass(bench, second=False, seconds_a_request=1.0)
    assert (reaped.complete, bench.holders() == []) == (False, is_free)


def test_a_claim_whose_work_has_ended_costs_two_requests_a_pass(bench: Bench) -> None:
    put_claims(bench, WAITERS, mark_ended)
    bench.end()
    for second in (False, True):
        client = FaultyTable(bench.client)
        assert bench.reap(second=second, client=client).complete
        assert len(client.calls) == 1 + 2 * WAITERS


def test_claims_that_do_not_fit_into_one_page_are_all_found(clock: ManualClock) -> None:
    bench = Bench(MemoryTable(page_size=100), clock)
    put_claims(bench, 300, write_claim)
    table = bench.store().context.table
    query = claims_of(RUN, before=ReapStage.FIRST_PASS_DONE)
    assert len(table.query(query).items) < 300
    assert len({claim["sk"]["S"] for claim in table.query_all(query)}) == 300
