"""Every check passes on facts as they should be and fails on bent ones, and on none at all."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from examples.demo.checks import (
    Check,
    all_finished,
    no_two_holders,
    no_update_lost,
    overlaps_were_found,
    tasks_got_their_token,
    they_contended,
    tokens_rise,
    updates_were_lost,
)
from examples.demo.facts import Account, Execution, Mode, Run
from tests.demo.builders import guarded_execution, queued, turn_taking

RUN_CHECKS: list[Callable[[Run], Check]] = [
    all_finished,
    they_contended,
    no_update_lost,
    tasks_got_their_token,
    lambda run: no_two_holders(run.executions),
    lambda run: tokens_rise(run.executions),
]
BOTH_KINDS = [*RUN_CHECKS, updates_were_lost, overlaps_were_found]


@pytest.mark.parametrize("check", RUN_CHECKS)
def test_a_run_that_takes_turns_passes(
    check: Callable[[Run], Check], polling_run: Run, queue_run: Run
) -> None:
    assert check(polling_run).passed
    assert check(queue_run).passed


@pytest.mark.parametrize("check", BOTH_KINDS)
def test_an_empty_record_fails(check: Callable[[Run], Check]) -> None:
    empty = Run(title="Nothing ran", mode=Mode.QUEUE, executions=(), accounts=())
    assert not check(empty).passed


@pytest.mark.parametrize("check", BOTH_KINDS)
def test_executions_that_did_nothing_fail(check: Callable[[Run], Check]) -> None:
    idle = replace(guarded_execution(), calls=(), status="RUNNING")
    account = Account(account_id="alice", opening=1000, closing=1000, last_change="opening")
    run = Run(title="Nothing done", mode=Mode.QUEUE, executions=(idle,), accounts=(account,))
    assert not check(run).passed


def test_one_execution_that_did_not_finish_fails(polling_run: Run) -> None:
    first, *others = polling_run.executions
    run = replace(polling_run, executions=(replace(first, status="FAILED"), *others))
    assert all_finished(run) == Check(
        claim="every execution finished its work", passed=False, evidence="5 of 6 succeeded"
    )


def test_an_unguarded_run_that_lost_something_is_evidence(unguarded_run: Run) -> None:
    assert updates_were_lost(unguarded_run) == Check(
        claim="without the guard, updates are lost, as expected",
        passed=True,
        evidence="1 of 2 (alice 1)",
    )
    assert overlaps_were_found(unguarded_run).passed


def test_an_unguarded_run_that_lost_nothing_is_no_evidence_and_fails(polling_run: Run) -> None:
    check = updates_were_lost(replace(polling_run, mode=Mode.BARE))
    assert not check.passed
    assert "no evidence" in check.evidence
    assert not overlaps_were_found(polling_run).passed


def test_a_lost_update_fails(unguarded_run: Run) -> None:
    check = no_update_lost(unguarded_run)
    assert (check.passed, check.evidence) == (False, "alice 980 (expected 970)")


def test_one_account_that_no_one_charged_fails(polling_run: Run) -> None:
    untouched = Account(account_id="zoe", opening=1000, closing=1000, last_change="opening")
    run = replace(polling_run, accounts=(*polling_run.accounts, untouched))
    assert not no_update_lost(run).passed


@pytest.mark.parametrize(("granted_ms", "passed"), [(1_100, True), (1_099, False)])
def test_entering_a_millisecond_before_the_holder_lets_go_fails(
    granted_ms: int, *, passed: bool
) -> None:
    holder = guarded_execution("first", granted_ms=100, released_ms=1_100)
    newcomer = guarded_execution("second", granted_ms=granted_ms, released_ms=3_000)
    check = no_two_holders([newcomer, holder])
    assert check.passed is passed
    if not passed:
        assert check.evidence == "2 holds checked, 1 overlaps (worst: first and second, 0.001 s)"


def test_an_overlap_hidden_behind_a_short_hold_is_found() -> None:
    long_hold = guarded_execution("long", granted_ms=0, released_ms=10_000)
    short_hold = guarded_execution("short", granted_ms=1_000, released_ms=2_000)
    late = guarded_execution("late", granted_ms=5_000, released_ms=6_000)
    assert "2 overlaps" in no_two_holders([long_hold, short_hold, late]).evidence


def test_holders_of_different_locks_may_overlap() -> None:
    both = [guarded_execution("a-1", "alice"), guarded_execution("b-1", "bob")]
    assert no_two_holders(both).passed


@pytest.mark.parametrize("later_token", [7, 6])
def test_a_token_that_falls_or_repeats_fails(later_token: int) -> None:
    earlier = guarded_execution("first", token=7, granted_ms=100)
    later = guarded_execution("second", token=later_token, granted_ms=2_000, released_ms=3_000)
    assert not tokens_rise([later, earlier]).passed


def test_a_single_token_per_lock_shows_no_rise() -> None:
    assert not tokens_rise([guarded_execution()]).passed


def test_a_task_with_another_grants_token_fails(polling_run: Run) -> None:
    first, second, *others = polling_run.executions
    swapped = replace(first, calls=(*first.calls[:-2], second.calls[-2], first.calls[-1]))
    run = replace(polling_run, executions=(swapped, second, *others))
    assert tasks_got_their_token(run).evidence == "5 of 6"
    assert not tasks_got_their_token(run).passed


@pytest.mark.parametrize(
    ("asked_ms", "passed"), [(1_099, True), (1_100, False)], ids=["before it left", "after"]
)
def test_only_who_asked_while_another_was_inside_has_contended(
    asked_ms: int, *, passed: bool
) -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    second = guarded_execution("a-2", asked_ms=asked_ms, granted_ms=1_150, released_ms=2_000)
    run = Run(title="Two", mode=Mode.QUEUE, executions=(first, queued(second)), accounts=())
    assert they_contended(run).passed is passed


def test_one_lock_on_which_no_one_had_to_wait_fails(queue_run: Run) -> None:
    alone = guarded_execution("zoe-1", "zoe")
    run = replace(queue_run, executions=(*queue_run.executions, alone))
    assert they_contended(run) == Check(
        claim="they really contended",
        passed=False,
        evidence="4 of 7 had to wait for another to leave, on 2 of 3 locks",
    )


def test_a_run_in_which_no_one_had_to_wait_fails() -> None:
    alone: tuple[Execution, ...] = tuple(turn_taking(count=1))
    run = Run(title="Alone", mode=Mode.POLLING, executions=alone, accounts=())
    assert not they_contended(run).passed
