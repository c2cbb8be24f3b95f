"""100,000 executions end together: what each end costs, counted, and what docs/protocol.md says."""

from __future__ import annotations

import re
from typing import Any

from fairlock.aws.executions import Execution
from fairlock.protocol.model import ExecutionEnded, Liveness
from tests.support import CountingClient, FakeClock, acquire
from tests.support.capacity import MeteredTable
from tests.support.documents import ROOT
from tests.support.store_bench import RUN, Bench

ENDS = 100_000
SECONDS_A_REQUEST = 0.01
CONCURRENCY = 50
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
        client, table.write_units = CountingClient(table), 0
        order = ExecutionEnded(
            execution_arn=RUN, ended_at_ms=ended.ended_at_ms, second_pass=is_second
        )
        assert bench.store(client).reap(order).complete
    return client.calls, table.write_units, len(bench.workflows.described)


def row(first_cell: str) -> list[str]:
    [line] = [each for each in DOCUMENT.splitlines() if each.startswith(f"| {first_cell} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_requests_and_units_of_each_pass_are_those_of_the_document(clock: FakeClock) -> None:
    for name, second in (("first pass", False), ("second pass", True)):
        calls, units, asked = counted(clock, second=second)
        assert row(name)[1:4] == [str(len(calls)), str(units), str(asked)]


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
