"""Executions with more claims than one invocation can free, or one page can show."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.protocol.claims import Claim, ReapStage, claims_of, mark_ended, write_claim
from fairlock.protocol.outcomes import Reaped
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE, FakeClock
from tests.support.faulty_table import FaultyTable, delay
from tests.support.store_bench import OTHER_RUN, RUN, Bench

CLAIMS = 1_000
WAITERS = 200
SECONDS_A_LOOK = 19.0
MOST_PASSES = 20


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def reap_pass(bench: Bench, *, second: bool, seconds_a_request: float = 0.01) -> Reaped:
    deadline = bench.clock.monotonic() + SECONDS_A_LOOK
    retry_budget = RetryBudget(clock=bench.clock, deadline=deadline)
    client = FaultyTable(bench.client, delay(seconds_a_request, bench.clock))
    return bench.reap(second=second, client=client, retry_budget=retry_budget)


def looks_until_complete(bench: Bench, *, second: bool) -> list[Reaped]:
    """As the handler does: the same pass again and again, while it is not complete."""
    passes = [reap_pass(bench, second=second)]
    while not passes[-1].complete:
        assert len(passes) < MOST_PASSES
        passes.append(reap_pass(bench, second=second))
    return passes


def test_passes_that_run_out_of_time_are_taken_up_where_they_ended(bench: Bench) -> None:
    table = LockTable(bench.client, TABLE)
    for number in range(CLAIMS):
        name = f"lock-{number % 500}"
        owner_id = f"iteration-{number:06d}"
        claim = Claim(execution_arn=RUN, lock_name=name, owner_id=owner_id)
        table.update(write_claim(claim, waits=True, now_ms=bench.clock.now_ms))
    names = [f"lock-{number}" for number in range(0, 500, 50)]
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
    while not (reaped := reap_pass(bench, second=False, seconds_a_request=0.1)).holders:
        assert not reaped.complete
        assert bench.holders() == ["iteration-0000"]
    assert (bench.waiters(), bench.pushed) == ([], [])


@pytest.mark.parametrize(("ended", "is_free"), [(True, True), (False, False)])
def test_claims_whose_work_has_ended_do_not_delay_what_is_held(
    bench: Bench, *, ended: bool, is_free: bool
) -> None:
    """A Map of many iterations with keep_alive leaves as many of them; were they like others…"""
    table = LockTable(bench.client, TABLE)
    for number in range(WAITERS):
        claim = Claim(execution_arn=RUN, lock_name="other", owner_id=f"ended-{number:06d}")
        write = mark_ended if ended else write_claim
        table.update(write(claim, waits=False, now_ms=bench.clock.now_ms))
    bench.wait("anna")
    bench.end()
    reaped = reap_pass(bench, second=False, seconds_a_request=1.0)
    assert (reaped.complete, bench.holders() == []) == (False, is_free)


def test_a_claim_whose_work_has_ended_costs_two_requests_a_pass(bench: Bench) -> None:
    table = LockTable(bench.client, TABLE)
    for number in range(WAITERS):
        claim = Claim(execution_arn=RUN, lock_name="other", owner_id=f"ended-{number:06d}")
        table.update(mark_ended(claim, waits=False, now_ms=bench.clock.now_ms))
    bench.end()
    client = FaultyTable(bench.client)
    for second in (False, True):
        client.calls.clear()
        assert bench.reap(second=second, client=client).complete
        assert len(client.calls) == 1 + 2 * WAITERS


def test_claims_that_do_not_fit_into_one_page_are_all_found() -> None:
    items: list[Any] = [
        {
            "pk": {"S": f"EXECUTION#{RUN}"},
            "sk": {"S": f"LOCK#{'x' * 500}#owner-{number:010d}"},
            "lock_name": {"S": "x" * 500},
            "owner_id": {"S": f"owner-{number:010d}"},
            "revision": {"N": "1"},
        }
        for number in range(300)
    ]
    memory = MemoryTable(page_size=100)
    for item in items:
        memory.put_item(Item=item)
    table = LockTable(memory, TABLE)  # type: ignore[arg-type]  # replaces a client
    query = claims_of(RUN, before=ReapStage.FIRST_PASS_DONE)
    assert len(table.query(query).items) < len(items)
    assert table.query_all(query) == items
