"""An event that tells its run frees what that run has claimed, and Step Functions is not asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.protocol.claims import Claim, is_of_a_run_that_ended
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Reaped, Refusal
from fairlock.store.reap import AskedTooEarly, ExecutionEnded
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import acquire
from tests.support.checkout import ROOT
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.memory_tables import MeteredTable
from tests.support.store_bench import RUN, Bench

SECOND_PASS_SECONDS = 35
A_DAY_SECONDS = 24 * 3_600


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    """Step Functions knows nothing at all: who asks it learns nothing."""
    bench = Bench(MemoryTable(), clock)
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    return bench


def told(
    bench: Bench, *, redrives: int = 0, seconds_ago: float = 0, second: bool = False
) -> Reaped:
    ended = ExecutionEnded(
        execution_arn=RUN,
        redrives=redrives,
        ended_at_ms=bench.clock.wall_ms() - round(seconds_ago * 1000),
        second_pass=second,
    )
    return bench.store().reap(ended)


def claim(bench: Bench, name: str = "anna", *, redrives: int | None = 0, **fields: Any) -> Grant:  # noqa: ANN401 - of the request
    return bench.grant(name, execution_arn=RUN, redrives=redrives, **{"lock_name": name, **fields})


def is_held(bench: Bench, name: str = "anna") -> bool:
    return bench.holders(name) == [name]


@pytest.mark.parametrize("second", [False, True])
def test_both_passes_free_what_the_run_has_claimed_and_ask_no_one(
    bench: Bench, *, second: bool
) -> None:
    claim(bench)
    ago = SECOND_PASS_SECONDS if second else 0
    bench.clock.advance(1 + ago)
    assert told(bench, second=second, seconds_ago=ago) == Reaped(holders=1)
    assert bench.workflows.described == []


def test_what_a_redriven_run_has_claimed_is_left_to_its_own_event(bench: Bench) -> None:
    claim(bench, "anna", redrives=0)
    claim(bench, "ben", redrives=1)
    assert told(bench) == Reaped(holders=1)
    assert (is_held(bench, "anna"), is_held(bench, "ben")) == (False, True)
    assert told(bench, redrives=1) == Reaped(holders=1)
    assert not is_held(bench, "ben")


def test_a_redriven_run_that_took_the_claim_over_by_a_heartbeat_keeps_its_lock(
    bench: Bench,
) -> None:
    claim(bench, "anna", lock_name="nightly-report")
    assert bench.beat("anna", redrives=1).name == "RENEWED"
    bench.clock.advance(1)
    for second, ago in ((False, 1), (True, SECOND_PASS_SECONDS)):
        assert told(bench, second=second, seconds_ago=ago) == Reaped()
    assert bench.holders() == ["anna"]


def test_a_late_call_of_the_first_run_does_not_make_the_claim_its_own_again(bench: Bench) -> None:
    claim(bench, redrives=1)
    bench.ask("anna", execution_arn=RUN, redrives=0, lock_name="anna")
    told(bench)
    assert is_held(bench)


@pytest.mark.parametrize(
    "asks",
    [
        lambda bench: (claim(bench, redrives=None), told(bench)),
        lambda bench: (
            claim(bench),
            bench.clock.advance(A_DAY_SECONDS + 60),
            told(bench, seconds_ago=A_DAY_SECONDS + 1),
        ),
        lambda bench: (bench.clock.advance(100), claim(bench), told(bench, seconds_ago=36)),
        lambda bench: (claim(bench), bench.reap()),
        lambda bench: (claim(bench), told(bench, second=True, seconds_ago=30)),
    ],
    ids=[
        "a claim that does not tell its run",
        "an event that is older than a day",
        "a claim of a name that is used again",
        "an event that does not tell its run",
        "a second pass that is too early",
    ],
)
def test_step_functions_is_asked_where_the_event_alone_proves_nothing(
    bench: Bench,
    asks: Any,  # noqa: ANN401 - a scene
) -> None:
    with pytest.raises(Exception, match="did not say"):
        asks(bench)
    assert bench.workflows.described == [RUN]
    assert is_held(bench)


def test_what_is_certain_is_freed_though_the_rest_must_be_asked_about(bench: Bench) -> None:
    claim(bench, "anna")
    claim(bench, "ben", redrives=None)
    bench.redrive(redrives=0)
    with pytest.raises(AskedTooEarly):
        told(bench)
    assert (is_held(bench, "anna"), is_held(bench, "ben")) == (False, True)


def test_a_claim_that_was_written_late_by_another_execution_is_not_taken_for_its_own() -> None:
    claimed = Claim(
        execution_arn=RUN, lock_name="a", owner_id="x", redrives=0, written_at_ms=100_000
    )
    over = {"redrives": 0, "ended_at_ms": 65_000}
    assert is_of_a_run_that_ended(claimed, **over)
    assert not is_of_a_run_that_ended(replace(claimed, written_at_ms=100_001), **over)


# 100,000 executions end together: what each end costs, counted, and what docs/protocol.md says.

ENDS = 100_000
SECONDS_A_REQUEST = 0.01
CONCURRENCY = 50
BATCH = 10
"""Messages; both are checked on the template in `tests/unit/cdk/test_lock_stack.py`."""
NEW_TABLE_WRITE_UNITS = 4_000
"""A second, of an on-demand table that was made just now."""
DOCUMENT = (ROOT / "docs" / "protocol.md").read_text()


def counted(clock: ManualClock) -> Iterator[tuple[list[str], int, int]]:
    """Of each pass over one lock: its requests, its write units, and its questions to engines."""
    table: Any = MeteredTable()
    bench = Bench(table, clock)
    bench.executions[RUN] = Execution(Liveness.UNKNOWN)
    bench.ask("anna", execution_arn=RUN, redrives=0)
    clock.advance(1)
    ended = ExecutionEnded(execution_arn=RUN, ended_at_ms=clock.wall_ms())
    for order in (ended, replace(ended, second_pass=True)):
        client, table.write_units = FaultyTable(table), 0
        assert bench.store(client).reap(order).complete
        yield client.calls, table.write_units, len(bench.workflows.described)
        clock.advance(SECOND_PASS_SECONDS)


def row(first_cell: str) -> list[str]:
    [line] = [each for each in DOCUMENT.splitlines() if each.startswith(f"| {first_cell} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def figures(sentence: str) -> list[int]:
    found = re.search(sentence, DOCUMENT.replace("\n", " "))
    assert found is not None
    return [int(text) for text in found.groups()]


def test_what_the_document_says_of_many_ends_follows_from_what_each_takes(
    clock: ManualClock,
) -> None:
    """A second, all functions are busy with first passes, or with second ones."""
    passes = [(len(calls), units, asked) for calls, units, asked in counted(clock)]
    of_each = r"each pass takes (\d+) requests to DynamoDB, (\d+) write units and (\d+) calls"
    assert passes == [tuple(figures(of_each))] * 2
    requests, units, _ = map(sum, zip(*passes, strict=True))
    by_functions = ENDS * requests * SECONDS_A_REQUEST / CONCURRENCY
    by_a_new_table = ENDS * units / NEW_TABLE_WRITE_UNITS
    times = figures(r"the functions take (\d+) s .* a new table takes (\d+) s")
    assert times == [round(by_functions), round(by_a_new_table)]
    a_second = CONCURRENCY / SECONDS_A_REQUEST
    busiest = max(a_second * units / calls for calls, units, _ in passes)
    served = max(a_second / calls for calls, _, _ in passes)
    assert row("DynamoDB, write units")[1] == f"{busiest:,.0f}"
    assert row("EventBridge, deliveries to the queue")[1] == f"{round(ENDS / 60, -2):,.0f}"
    assert row("SQS")[1] == f"{served / BATCH:,.0f} batches received, {served:,.0f} messages sent"
    assert row("Lambda")[1] == f"{CONCURRENCY} functions at once"
    assert row("Step Functions, DescribeExecution")[1].startswith("none;")


def test_what_the_first_pass_has_marked_the_second_need_not_mark_again(bench: Bench) -> None:
    """A claim was written before its execution ended; the write on the lock lands after both."""

    def both_passes() -> None:
        bench.clock.advance(2)
        bench.end()
        bench.reap()
        bench.clock.advance(SECOND_PASS_SECONDS)
        client = FaultyTable(bench.client)
        bench.reap(second=True, client=client)
        assert (len(client.calls), bench.holders()) == (4, [])

    late = acquire("anna", execution_arn=RUN, redrives=0)
    assert isinstance(bench.store(meanwhile(2, both_passes)).acquire(late), Refusal)
    assert bench.holders() == []
