"""What the queue promises beyond exclusion; a run that polls breaks each of it."""

from dataclasses import replace

import pytest

from examples.demo.checks import Check
from examples.demo.facts import Execution, Incident, Mode, Run
from examples.demo.turns import (
    granted_in_order_of_entry,
    less_idle_than,
    waiting_cost_nothing,
    woken,
)
from tests.demo.builders import guarded_execution, queued, timed_out

EMPTY = Run(title="Nobody", mode=Mode.QUEUE, executions=(), accounts=())


def of(*executions: Execution) -> Run:
    return replace(EMPTY, executions=executions)


def test_a_run_in_the_queue_keeps_every_promise(queue_run: Run, polling_run: Run) -> None:
    assert granted_in_order_of_entry(queue_run) == Check(
        claim="waiters got in in the order of entry",
        passed=True,
        evidence="6 pairs compared, 0 times someone was overtaken",
    )
    assert waiting_cost_nothing(queue_run, fallback_seconds=10) == Check(
        claim="waiting cost no state transitions",
        passed=True,
        evidence="4 transitions, also after 2.1 s of waiting",
    )
    assert less_idle_than(queue_run, polling_run) == Check(
        claim="the lock was idle between holders for less time than with polling",
        passed=True,
        evidence="median 40 ms, with polling 500 ms",
    )


def test_one_who_was_overtaken_fails() -> None:
    first = guarded_execution("a-1", asked_ms=0, granted_ms=100, released_ms=1_000)
    third = guarded_execution("a-3", asked_ms=20, granted_ms=1_050, released_ms=2_000)
    second = guarded_execution("a-2", asked_ms=10, granted_ms=2_050, released_ms=3_000)
    run = of(*map(queued, (first, third, second)))
    assert granted_in_order_of_entry(run) == Check(
        claim="waiters got in in the order of entry",
        passed=False,
        evidence="3 pairs compared, 1 times someone was overtaken",
    )


def test_a_newcomer_on_another_account_overtakes_no_one() -> None:
    waiter = guarded_execution("a-1", "alice", asked_ms=0, granted_ms=5_000, released_ms=6_000)
    other = guarded_execution("b-1", "bob", asked_ms=100, granted_ms=150, released_ms=1_000)
    assert "0 pairs" in granted_in_order_of_entry(of(waiter, other)).evidence


def test_polling_pays_for_waiting(polling_run: Run) -> None:
    check = waiting_cost_nothing(polling_run, fallback_seconds=10)
    assert not check.passed
    assert check.evidence == "4 paid for more than the 5 transitions of the cheapest"


@pytest.mark.parametrize(("granted_ms", "passed"), [(11_050, True), (9_050, False)])
def test_one_transition_more_is_allowed_for_each_fallback_period_waited(
    granted_ms: int, *, passed: bool
) -> None:
    first = queued(guarded_execution("a-1", granted_ms=100, released_ms=granted_ms - 50))
    waited = guarded_execution("a-2", granted_ms=granted_ms, released_ms=granted_ms + 1_000)
    asked_twice = timed_out(queued(waited), 0)
    check = waiting_cost_nothing(of(first, asked_twice), fallback_seconds=10)
    assert check.passed is passed


def test_a_queue_that_is_idle_for_as_long_as_a_poller_fails(polling_run: Run) -> None:
    assert not less_idle_than(polling_run, polling_run).passed


def test_runs_in_which_no_one_waited_prove_nothing(queue_run: Run) -> None:
    alone = of(queued(guarded_execution()))
    for run in (EMPTY, alone):
        assert not granted_in_order_of_entry(run).passed
        assert not waiting_cost_nothing(run, fallback_seconds=10).passed
        assert not less_idle_than(run, queue_run).passed
        assert not less_idle_than(queue_run, run).passed


def test_the_next_after_a_failed_task_is_woken(failed: Incident) -> None:
    check = woken(failed)
    assert (check.passed, check.evidence) == (True, "asked 1 time, in 50 ms after the broken one")


def test_a_next_one_that_had_to_ask_again_was_not_woken(
    failed: Incident,
) -> None:
    late = guarded_execution("dave-2", "dave", granted_ms=10_600, released_ms=11_000)
    fell_back = replace(failed, following=timed_out(late, 500))
    assert woken(fell_back).evidence == "asked 2 times, in 9.5 s after the broken one"
    polled = guarded_execution("dave-2", "dave", granted_ms=1_150, released_ms=2_000)
    for incident in (fell_back, replace(failed, following=polled)):
        assert not woken(incident).passed


def test_a_next_one_that_came_later_or_never_was_not_woken(failed: Incident) -> None:
    late = guarded_execution("dave-2", "dave", asked_ms=1_105, granted_ms=1_150, released_ms=2_000)
    for following in (late, replace(late, calls=())):
        assert not woken(replace(failed, following=following)).passed
