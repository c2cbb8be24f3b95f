"""The demo's verdicts: they pass on facts as they should be, and fail on bent ones and on none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from examples.demo import durable_act, readers_act
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
from examples.demo.durable_act import Charged
from examples.demo.facts import Account, Execution, Role, Run
from examples.demo.incidents import error_kept, handed_on
from examples.demo.ledger import Statement, statement
from examples.demo.readers_act import AMOUNT, EARLY, LATE, Read
from examples.demo.runner import OPENING_BALANCE
from examples.demo.turns import (
    granted_in_order_of_entry,
    less_idle_than,
    waiting_cost_nothing,
)
from examples.demo.verdict import all_checks
from tests.demo.builders import (
    EMPTY,
    FAILED,
    LIMITS,
    POLLING,
    QUEUE,
    STOPPED,
    STORY,
    UNGUARDED,
    guarded_execution,
    queued,
    timed_out,
)


def test_every_check_of_a_good_story_passes() -> None:
    judged = all_checks(STORY, error="CardDeclined")
    assert [check for checks in judged.values() for check in checks if not check.passed] == []


# A run whose executions take turns.

RunCheck = Callable[[Run], Check]


def two_holders(run: Run) -> Check:
    return no_two_holders(run.executions)


def rising(run: Run) -> Check:
    return tokens_rise(run.executions)


def costs_nothing(run: Run) -> Check:
    return waiting_cost_nothing(run, fallback_seconds=10)


RUN_CHECKS: list[RunCheck] = [
    *(all_finished, they_contended, no_update_lost, tasks_got_their_token, two_holders, rising),
    *(granted_in_order_of_entry, costs_nothing, updates_were_lost, overlaps_were_found),
]


def of(*executions: Execution, accounts: Sequence[Account] = ()) -> Run:
    return replace(EMPTY, executions=executions, accounts=tuple(accounts))


IDLE = of(
    replace(guarded_execution(), calls=(), status="RUNNING"),
    accounts=[Account(account_id="alice", opening=1000, closing=1000, last_change="opening")],
)


@pytest.mark.parametrize("check", RUN_CHECKS)
@pytest.mark.parametrize("run", [EMPTY, IDLE], ids=["empty", "idle"])
def test_a_run_in_which_nothing_happened_fails(check: RunCheck, run: Run) -> None:
    assert not check(run).passed


FIRST, SECOND, *OTHERS = POLLING.executions
HOLDER = guarded_execution("first", granted_ms=100, released_ms=1_100)


def entering(granted_ms: int) -> Run:
    return of(guarded_execution("second", granted_ms=granted_ms), HOLDER)


def asking(asked_ms: int) -> Run:
    return of(HOLDER, queued(guarded_execution("a-2", asked_ms=asked_ms, granted_ms=1_150)))


def tokens(first: int, second: int) -> Run:
    late = guarded_execution("b", token=second, granted_ms=2_000)
    return of(late, guarded_execution("a", token=first))


def waited(granted_ms: int) -> Run:
    """One that asked in vain for a fallback period, behind another one."""
    first = queued(guarded_execution("a-1", granted_ms=100, released_ms=granted_ms - 50))
    late = guarded_execution("a-2", granted_ms=granted_ms)
    return of(first, timed_out(queued(late), 0))


def overtaken() -> Run:
    times = ((1, 0, 100, 1_000), (3, 20, 1_050, 2_000), (2, 10, 2_050, 3_000))
    return of(
        *(
            queued(guarded_execution(f"a-{n}", asked_ms=a, granted_ms=g, released_ms=r))
            for n, a, g, r in times
        )
    )


HIDDEN = of(
    guarded_execution("long", granted_ms=0, released_ms=10_000),
    guarded_execution("short", granted_ms=1_000, released_ms=2_000),
    guarded_execution("late", granted_ms=5_000, released_ms=6_000),
)
SWAPPED = replace(FIRST, calls=(*FIRST.calls[:-2], SECOND.calls[-2], FIRST.calls[-1]))
BENT: dict[str, tuple[RunCheck, Run, bool, str]] = {
    "one did not finish": (
        *(all_finished, replace(POLLING, executions=(replace(FIRST, status="FAILED"), *OTHERS))),
        *(False, "4 of 5 succeeded"),
    ),
    "nothing was lost": (updates_were_lost, POLLING, False, "no evidence"),
    "no overlap without a guard": (overlaps_were_found, POLLING, False, "0 of 6"),
    "an overlap without a guard": (overlaps_were_found, UNGUARDED, True, "1 of 2"),
    "a lost update": (no_update_lost, UNGUARDED, False, "alice 980 (expected 970)"),
    "in when the holder lets go": (two_holders, entering(1_100), True, "2 holds checked"),
    "in a millisecond before": (
        *(two_holders, entering(1_099), False),
        "2 holds checked, 1 overlaps (worst: first and second, 0.001 s)",
    ),
    "hidden behind a short hold": (two_holders, HIDDEN, False, "2 overlaps"),
    "a token that repeats": (rising, tokens(7, 7), False, ""),
    "another grant's token": (
        *(tasks_got_their_token, replace(POLLING, executions=(SWAPPED, SECOND, *OTHERS))),
        *(False, "5 of 6"),
    ),
    "asked before the other left": (they_contended, asking(1_099), True, ""),
    "asked after": (they_contended, asking(1_100), False, ""),
    "alone on one lock": (
        *(they_contended, of(*QUEUE.executions, guarded_execution("zoe-1", "zoe")), False),
        "4 of 7 had to wait for another to leave, on 2 of 3 locks",
    ),
    "in the order of entry": (granted_in_order_of_entry, QUEUE, True, "6 pairs compared, 0 times"),
    "overtaken": (granted_in_order_of_entry, overtaken(), False, "3 pairs compared, 1 times"),
    "waiting is free": (costs_nothing, QUEUE, True, "4 transitions, also after 2.1 s of waiting"),
    "polling pays": (
        *(costs_nothing, POLLING, False),
        "4 paid for more than the 5 transitions of the cheapest",
    ),
    "one transition more in a fallback period": (costs_nothing, waited(11_050), True, ""),
}


@pytest.mark.parametrize("bent", BENT)
def test_a_run_with_one_bent_fact_is_judged_by_it(bent: str) -> None:
    check, run, passed, evidence = BENT[bent]
    found = check(run)
    assert found.passed is passed
    assert evidence in found.evidence


def test_the_queue_is_idle_for_less_time_than_polling() -> None:
    assert less_idle_than(QUEUE, POLLING) == Check(
        claim="the lock was idle between holders for less time than with polling",
        passed=True,
        evidence="median 40 ms, with polling 500 ms",
    )
    alone = of(queued(guarded_execution()))
    for one, other in ((POLLING, POLLING), (alone, QUEUE), (QUEUE, alone), (EMPTY, QUEUE)):
        assert not less_idle_than(one, other).passed


# A failed task and a stopped execution.


def without(execution: Execution, role: Role) -> Execution:
    return replace(execution, calls=tuple(c for c in execution.calls if c.role is not role))


@pytest.mark.parametrize(
    "broken",
    [
        replace(FAILED.broken, error="States.TaskFailed"),
        without(FAILED.broken, Role.RELEASE),
        guarded_execution(),
    ],
    ids=["renamed", "not released", "succeeded"],
)
def test_an_error_that_was_renamed_or_not_raised_or_leaked_fails(broken: Execution) -> None:
    assert error_kept(FAILED, "CardDeclined").passed
    assert not error_kept(replace(FAILED, broken=broken), "CardDeclined").passed


def erin(*in_vain_ms: int, asked_ms: int = 500, granted_ms: int = 1_600) -> Execution:
    """The next one asked once and got in; or it asked at these times in vain before."""
    late = guarded_execution("erin-2", "erin", asked_ms=asked_ms, granted_ms=granted_ms)
    return timed_out(late, *in_vain_ms) if in_vain_ms else queued(late)


# The lock was acquired at 95 ms: the lease is over at 6,095 ms, the clock tolerance at 8,095 ms.
@pytest.mark.parametrize(
    ("following", "passed", "evidence"),
    [
        (
            STOPPED.following,
            True,
            (
                "in 600 ms after the stop, asked 1 time (lease and tolerance would have taken "
                "7.1 s, and a question of its own up to 10 s more)"
            ),
        ),
        (erin(granted_ms=1_001), True, "in "),
        (erin(granted_ms=6_095), False, "in "),
        (erin(500, granted_ms=1_600), False, "in 600 ms after the stop, asked 2 times"),
        (guarded_execution("erin-2", "erin", asked_ms=500, granted_ms=1_600), False, ""),
        (without(STOPPED.following, Role.ACQUIRE), False, ""),
    ],
)
def test_the_next_one_must_be_pushed_in_before_the_lease_is_over(
    following: Execution, *, passed: bool, evidence: str
) -> None:
    check = handed_on(replace(STOPPED, following=following), LIMITS)
    assert check.passed is passed
    assert check.evidence.startswith(evidence)


# Lost updates are found by who had read whose change, not by clocks.


def test_an_overwritten_update_is_named_and_what_no_change_explains_does_not_add_up() -> None:
    (account,) = UNGUARDED.accounts
    assert statement(UNGUARDED, account) == Statement(
        account=account, changes=2, expected=970, lost=("a-1",), adds_up=True
    )
    alice = POLLING.accounts[0]
    assert not statement(POLLING, replace(alice, closing=123)).adds_up
    stranger = statement(POLLING, replace(alice, last_change="a-stranger"))
    assert (stranger.lost, stranger.adds_up) == (("alice-1", "alice-2", "alice-3"), False)


# The act with durable functions.

EXPECTED = OPENING_BALANCE - sum(durable_act.AMOUNTS)
ACT = (
    Charged(kind="durable function", token=7, invocations=2),
    Charged(kind="workflow", token=8),
    Charged(kind="durable function", token=9, invocations=3),
    Charged(kind="workflow", token=10),
)
FINISHED, NOTHING_LOST, OWN_TOKENS, SLEEPS = range(4)


def failed(checks: Sequence[Check]) -> list[int]:
    return [at for at, check in enumerate(checks) if not check.passed]


@pytest.mark.parametrize(
    ("charged", "balance", "faults"),
    [
        (ACT, EXPECTED, []),
        ((), OPENING_BALANCE, [FINISHED, NOTHING_LOST, OWN_TOKENS, SLEEPS]),
        (ACT, EXPECTED + 10, [NOTHING_LOST]),
        ((*ACT[:3], Charged(kind="workflow", token=None)), EXPECTED, [FINISHED, OWN_TOKENS]),
        ((replace(ACT[0], invocations=9), *ACT[1:]), EXPECTED, [SLEEPS]),
    ],
)
def test_what_went_wrong_in_the_durable_act_is_found(
    charged: Sequence[Charged], balance: int, faults: list[int]
) -> None:
    assert failed(durable_act.judge(charged, balance=balance)) == faults


# The act with readers.

AFTER = OPENING_BALANCE - AMOUNT
EARLY_READ = Read(is_late=False, first=OPENING_BALANCE, last=OPENING_BALANCE, beside=EARLY)
LATE_READ = Read(is_late=True, first=AFTER, last=AFTER, beside=LATE)
READS = (*[EARLY_READ] * EARLY, *[LATE_READ] * LATE)
TOGETHER, ALONE, IN_ORDER = range(3)


@pytest.mark.parametrize(
    ("reads", "status", "faults"),
    [
        (READS, "SUCCEEDED", []),
        ((), "SUCCEEDED", [TOGETHER, ALONE, IN_ORDER]),
        ((*[replace(EARLY_READ, beside=1)] * EARLY, *READS[EARLY:]), "SUCCEEDED", [TOGETHER]),
        ((replace(EARLY_READ, last=AFTER), *READS[1:]), "SUCCEEDED", [ALONE]),
        ((*READS[:-1], replace(LATE_READ, first=OPENING_BALANCE)), "SUCCEEDED", [IN_ORDER]),
        (READS, "FAILED", [ALONE]),
    ],
)
def test_what_went_wrong_in_the_readers_act_is_found(
    reads: Sequence[Read], status: str, faults: list[int]
) -> None:
    writer = replace(guarded_execution(), status=status)
    assert failed(readers_act.judge(reads, writer)) == faults
