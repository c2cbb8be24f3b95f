"""Messages that are forged, or come too early: the reaper believes Step Functions, not messages."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.aws.executions import Execution
from fairlock.protocol.model import Liveness
from fairlock.protocol.outcomes import Grant, Reaped
from fairlock.store import reap
from fairlock.store.reap import AskedTooEarly
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench

FORGED: dict[str, dict[str, Any]] = {
    "a first pass": {},
    "a second pass": {"second": True},
    "a first pass after redrives that never were": {"redrives": 7},
    "a second pass after redrives that never were": {"second": True, "redrives": 7},
}


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """An execution that runs holds a lock, and waits for another behind a second execution."""
    bench = Bench(MemoryTable(), clock)
    bench.wait("anna")
    bench.wait("ben", lock_name="other", execution_arn=OTHER_RUN)
    bench.wait("zita", lock_name="other")
    return bench


def all_items(bench: Bench) -> list[Any]:
    items: list[Any] = bench.client.scan(TableName="any")["Items"]
    return items


@pytest.mark.parametrize("redrives", [0, 2])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_message_about_a_running_execution_frees_nothing_and_writes_nothing(
    bench: Bench, forged: dict[str, Any], redrives: int
) -> None:
    bench.executions[RUN] = Execution(Liveness.RUNNING, redrives)
    before = all_items(bench)
    client = FaultyTable(bench.client)
    message = {**forged, "redrives": redrives + forged.get("redrives", 0)}
    with pytest.raises(AskedTooEarly, match="runs, says Step Functions"):
        bench.reap(client=client, **message)
    assert client.calls == ["query"]
    assert all_items(bench) == before


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_reaper_that_believes_messages_frees_the_lock_of_a_running_execution(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, forged: dict[str, Any]
) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr(reap, "_choose_pass", lambda _context, _ended: reap._FIRST_PASS)  # noqa: SLF001 - what is believed
    bench.executions[RUN] = Execution(Liveness.RUNNING)
    assert bench.reap(**forged) == Reaped(holders=1, waiters=1)
    assert bench.holders() == []


@pytest.mark.parametrize("second", [False, True])
def test_a_forged_message_of_an_earlier_run_frees_nothing_of_a_redriven_execution(
    bench: Bench, *, second: bool
) -> None:
    bench.executions[RUN] = Execution(Liveness.RUNNING, redrives=1)
    before = all_items(bench)
    assert bench.reap(second=second) == Reaped()
    assert all_items(bench) == before


def test_what_step_functions_calls_running_for_a_moment_longer_is_freed_by_the_repeated_message(
    bench: Bench,
) -> None:
    bench.executions[RUN] = Execution(Liveness.RUNNING)
    with pytest.raises(AskedTooEarly):
        bench.reap()
    bench.end()
    assert bench.reap() == Reaped(holders=1, waiters=1)
    assert bench.holders() == []


def ended(bench: Bench, seconds_ago: float) -> None:
    at_ms = bench.clock.now_ms - int(seconds_ago * 1000)
    bench.executions[RUN] = Execution(Liveness.OVER, ended_at_ms=at_ms)


@pytest.mark.parametrize(("seconds_ago", "early"), [(0, True), (32.9, True), (33, False)])
def test_a_second_pass_waits_until_no_acquire_of_the_execution_can_be_under_way(
    bench: Bench, seconds_ago: float, *, early: bool
) -> None:
    """35 s, less the 2 s by which clocks may differ."""
    ended(bench, seconds_ago)
    if early:
        with pytest.raises(AskedTooEarly, match="has ended just now"):
            bench.reap(second=True)
    assert bench.reap(second=not early) == Reaped(holders=1, waiters=1)


def forged_second_pass_before_a_late_acquire(bench: Bench) -> None:
    """An acquire has written its claim when its execution is stopped and the forgery comes.

    Then another caller uses the lock, and the lock forgets whom the reaper released.
    """

    def stopped() -> None:
        ended(bench, 0)
        try:
            bench.reap(second=True)
        except AskedTooEarly:
            bench.reap()
        bench.pass_through("late")

    late = FaultyTable(bench.client, meanwhile(2, stopped))
    request = acquire("late", lock_name="late", execution_arn=RUN)
    assert isinstance(bench.store(late).acquire(request), Grant)
    bench.reap()
    bench.clock.advance(35)
    bench.reap(second=True)


def test_a_forged_second_pass_does_not_spare_a_late_acquire_from_the_true_one(
    bench: Bench,
) -> None:
    forged_second_pass_before_a_late_acquire(bench)
    assert bench.holders("late") == []


def test_without_the_moment_of_its_end_a_forged_second_pass_spares_a_late_acquire(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr(reap, "_ended_just_now", lambda _context, _execution: False)
    forged_second_pass_before_a_late_acquire(bench)
    assert bench.holders("late") == ["late"]
