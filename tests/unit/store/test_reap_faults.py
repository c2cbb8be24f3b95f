"""What goes wrong around the end of an execution: late calls, passes that die, redrives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.claims import Claim, ReapStage, claims_of, mark_ended, write_claim
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Reaped
from fairlock.protocol.table_requests import Update
from tests.support import acquire
from tests.support.faulty_table import FaultyTable, delay, fault, lost_reply, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench


def stopped_and_reaped(bench: Bench) -> None:
    """The first pass finds what there is; after it another caller uses the lock."""
    bench.end()
    bench.reap()
    bench.pass_through()


@pytest.mark.parametrize("number", range(3))
def test_an_acquire_under_way_is_freed_by_the_second_pass_whenever_the_first_one_came(
    bench: Bench, number: int
) -> None:
    """The stop and the first pass come before the nth request of acquire; 2 is after the last."""
    late = FaultyTable(bench.client, meanwhile(number + 1, lambda: stopped_and_reaped(bench)))
    bench.ask("anna", execution_arn=RUN, over=late)
    late.end_plan()
    bench.reap(second=True)
    assert bench.holders() == []
    bench.grant("ben")


@pytest.mark.parametrize("number", range(5))
def test_a_late_acquire_that_joins_the_queue_is_taken_out_by_the_second_pass(
    bench: Bench, number: int
) -> None:
    bench.wait("ben", execution_arn=OTHER_RUN)
    bench.end()
    late = FaultyTable(bench.client, meanwhile(number + 1, bench.reap))
    bench.ask("anna", execution_arn=RUN, waits=True, task_token="anna", over=late)
    late.end_plan()
    bench.reap(second=True)
    assert bench.waiters() == []
    bench.release("ben", execution_arn=OTHER_RUN)
    assert bench.pushed == []
    bench.grant("carl")


def test_a_redriven_acquire_between_the_question_and_the_bar_is_not_robbed(bench: Bench) -> None:
    bench.wait("anna")
    bench.release("anna")
    acquiring = acquire("zita", execution_arn=RUN)
    with pytest.raises(LockStoreUnavailable):
        bench.store(fault(lost_reply(), 2)).acquire(acquiring)
    bench.end()

    def redriven() -> None:
        bench.redrive()
        assert isinstance(bench.store().acquire(acquiring), Grant)

    assert bench.reap(client=meanwhile(2, redriven)) == Reaped(complete=False)
    assert bench.reap() == Reaped()
    assert bench.holders() == ["zita"]


def test_what_a_pass_has_fenced_is_freed_though_the_execution_was_redriven(bench: Bench) -> None:
    """Else the redriven acquisition would wait for one of its own that landed late."""
    late = meanwhile(2, lambda: stopped_and_reaped(bench))
    bench.ask("anna", execution_arn=RUN, over=late)
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
        bench.store().context.table.update(write(claim, waits=waits, now_ms=bench.clock.now_ms))


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


def test_claims_that_do_not_fit_into_one_page_are_all_found(bench: Bench) -> None:
    put_claims(bench, 300, write_claim)
    bench.client.page_size = 100
    table = bench.store().context.table
    query = claims_of(RUN, before=ReapStage.FIRST_PASS_DONE)
    assert len(table.query(query).items) < 300
    assert len({claim["sk"]["S"] for claim in table.query_all(query)}) == 300
