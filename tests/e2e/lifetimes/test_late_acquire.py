"""An acquire that was under way when its workflow died lands after the reaper's first reap pass."""

from __future__ import annotations

from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.contested_lock import TIMES
from tests.e2e.lifetimes.dying_workflows import LEASE_SECONDS
from tests.e2e.lifetimes.late_acquires import (
    STILL_HELD_SECONDS,
    Late,
    LateBehind,
    LateWithoutSecondPass,
)
from tests.e2e.reap_passes import SECOND_PASS_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns


def test_what_it_takes_is_free_after_the_second_look(runs: ScenarioRuns, tell: Tell) -> None:
    late: list[Late] = runs["late, free"]
    assert [each.leaked for each in late] == [True] * len(late)
    freed = [each.freed_seconds for each in late]
    tell("acquire lands after the first reap pass: from the death until the next one works", freed)
    assert len(freed) == TIMES // 2
    assert min(freed) > SECOND_PASS_SECONDS - 1
    assert max(freed) < LEASE_SECONDS
    assert {each.next_ended.status for each in late} == {"SUCCEEDED"}
    assert [(each.holders, each.waiters) for each in late] == [([], [])] * len(late)


def test_a_barred_one_is_refused_as_long_as_no_one_else_used_the_lock(
    runs: ScenarioRuns,
) -> None:
    late: list[Late] = runs["late, refused"]
    assert [each.leaked for each in late] == [False] * len(late)
    assert {each.next_ended.status for each in late} == {"SUCCEEDED"}


def test_one_whose_claim_is_fenced_takes_nothing_though_others_have_used_the_lock(
    runs: ScenarioRuns,
) -> None:
    """It goes by the time of its claim, since when they have left."""
    late: list[Late] = runs["late, used"]
    assert [each.leaked for each in late] == [False] * (TIMES // 2)
    assert {each.next_ended.status for each in late} == {"SUCCEEDED"}
    assert [(each.holders, each.waiters) for each in late] == [([], [])] * len(late)


def test_a_newer_holder_keeps_its_lock_and_the_dead_waiter_goes(runs: ScenarioRuns) -> None:
    late: list[LateBehind] = runs["late, taken"]
    before_their_claim, before_the_lock = late[::2], late[1::2]
    assert [each.queued for each in before_their_claim] == [
        [each.execution] for each in before_their_claim
    ]
    assert [each.queued for each in before_the_lock] == [[]] * len(before_the_lock)
    for each in late:
        assert [renewal["renewed"] for renewal in each.renewals] == [True, True]
        assert each.released["released"] is True
        assert (each.waiters, each.holders) == ([], [])


def test_without_a_second_look_it_is_still_held_by_the_dead(runs: ScenarioRuns) -> None:
    late: list[LateWithoutSecondPass] = runs["late, no second pass"]
    before_its_claim, before_the_lock = late
    assert before_its_claim.held_seconds >= STILL_HELD_SECONDS > SECOND_PASS_SECONDS
    answer = before_its_claim.answer
    assert (answer["acquired"], answer["reason"]) == (False, "HELD")
    holders = [holder["owner_name"] for holder in answer["holders"]]
    assert holders == [before_its_claim.execution]
    assert before_the_lock.answer["acquired"] is True
