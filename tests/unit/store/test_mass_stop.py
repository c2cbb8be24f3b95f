"""100,000 executions end together: what each end costs, counted, and what docs/protocol.md says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.protocol.claims import Claim
from fairlock.protocol.model import Grant, ReleaseRequest
from fairlock.protocol.outcomes import Queued, Refusal
from fairlock.store.reap import ExecutionEnded, _release_request
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire
from tests.support.capacity import MeteredTable
from tests.support.documents import ROOT
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import RUN, Bench

ENDS = 100_000
SECONDS_A_REQUEST = 0.01
CONCURRENCY = 50
BATCH = 10
"""Messages; both are checked on the template in `tests/unit/cdk/test_reaper.py`."""
NEW_TABLE_WRITE_UNITS = 4_000
"""A second, of an on-demand table that was made just now."""
SECOND_PASS_SECONDS = 36
DOCUMENT = (ROOT / "docs" / "protocol.md").read_text()


def counted(clock: FakeClock, *, second: bool) -> tuple[list[str], int, int]:
    """The requests of one pass over one lock, its write units, and the questions to engines."""
    table: Any = MeteredTable()
    bench = Bench(table, clock)
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    bench.store().acquire(acquire("anna", execution_arn=RUN, redrives=0))
    clock.advance(1)
    ended = ExecutionEnded(execution_arn=RUN, ended_at_ms=clock.now_ms)
    for is_second in (False, True) if second else (False,):
        clock.advance(SECOND_PASS_SECONDS if is_second else 0)
        client, table.write_units = FaultyTable(table), 0
        order = ExecutionEnded(
            execution_arn=RUN, ended_at_ms=ended.ended_at_ms, second_pass=is_second
        )
        assert bench.store(client).reap(order).complete
    return client.calls, table.write_units, len(bench.workflows.described)


def row(first_cell: str) -> list[str]:
    [line] = [each for each in DOCUMENT.splitlines() if each.startswith(f"| {first_cell} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_requests_and_units_of_each_pass_are_those_of_the_document(clock: FakeClock) -> None:
    told = re.search(
        r"each pass takes (\d+) requests to DynamoDB, (\d+) write units and (\d+) calls", DOCUMENT
    )
    assert told is not None
    for second in (False, True):
        calls, units, asked = counted(clock, second=second)
        assert [int(text) for text in told.groups()] == [len(calls), units, asked]


def test_how_long_the_document_says_it_takes_follows_from_them(clock: FakeClock) -> None:
    passes = [counted(clock, second=second) for second in (False, True)]
    requests = sum(len(calls) for calls, _, _ in passes)
    units = sum(units for _, units, _ in passes)
    by_functions = ENDS * requests * SECONDS_A_REQUEST / CONCURRENCY
    by_a_new_table = ENDS * units / NEW_TABLE_WRITE_UNITS
    told = re.search(
        r"the functions take (\d+) s .* a new table takes (\d+) s", DOCUMENT.replace("\n", " ")
    )
    assert told is not None
    assert [int(text) for text in told.groups()] == [round(by_functions), round(by_a_new_table)]


def test_the_requests_a_second_of_the_document_follow_from_them(clock: FakeClock) -> None:
    """All functions are busy: with first passes, or with second ones."""
    a_second = CONCURRENCY / SECONDS_A_REQUEST
    passes = [counted(clock, second=second) for second in (False, True)]
    busiest = max(a_second * units / len(calls) for calls, units, _ in passes)
    served = max(a_second / len(calls) for calls, _, _ in passes)
    assert row("DynamoDB, write units")[1] == f"{busiest:,.0f}"
    assert row("EventBridge, deliveries to the queue")[1] == f"{round(ENDS / 60, -2):,.0f}"
    assert row("SQS")[1] == f"{served / BATCH:,.0f} batches received, {served:,.0f} messages sent"
    assert row("Lambda")[1] == f"{CONCURRENCY} functions at once"
    assert row("Step Functions, DescribeExecution")[1].startswith("none;")


def acquire_that_lands_after_both_passes(bench: Bench) -> Grant | Queued | Refusal:
    """Its claim was written before its execution ended; the write on the lock was late."""

    def both_passes() -> None:
        bench.clock.advance(2)
        bench.end()
        bench.reap()
        bench.clock.advance(SECOND_PASS_SECONDS)
        client, store = bench.counting()
        bench.reap(second=True, client=client)
        assert len(client.calls) == 4
        assert store.read_state("nightly-report").holders == ()

    between = FaultyTable(bench.client, meanwhile(2, both_passes))
    return bench.store(between).acquire(acquire("anna", execution_arn=RUN, redrives=0))


def test_what_the_first_pass_has_marked_the_second_need_not_mark_again(clock: FakeClock) -> None:
    bench = Bench(MemoryTable(), clock)
    assert isinstance(acquire_that_lands_after_both_passes(bench), Refusal)
    assert bench.holders() == []


def test_without_the_mark_of_the_first_pass_the_dead_would_be_granted_the_lock(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmarked(claim: Claim, *, marks: bool) -> ReleaseRequest:
        return replace(_release_request(claim, marks=marks), waits=False)

    monkeypatch.setattr("fairlock.store.reap._release_request", unmarked)
    assert isinstance(acquire_that_lands_after_both_passes(Bench(MemoryTable(), clock)), Grant)
