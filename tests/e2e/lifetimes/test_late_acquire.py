"""An acquire that was under way when its workflow died lands after the reaper's first look."""

from __future__ import annotations

from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.late import STILL_HELD_SECONDS, Late, LateBehind, LateUnlooked
from tests.e2e.lifetimes.scene import SLACK_SECONDS, TIMES
from tests.e2e.lifetimes.underway import Underway
from tests.e2e.looks import SECOND_PASS_SECONDS


def test_what_it_takes_is_free_after_the_second_look(underway: Underway, tell: Tell) -> None:
    late: list[Late] = underway["late, free"]
    assert [each.leaked for each in late] == [True] * len(late)
    freed = [each.freed_seconds for each in late]
    tell("acquire lands after the first look: from that until the next one works", freed)
    assert len(freed) == TIMES
    assert min(freed) > SECOND_PASS_SECONDS - 1
    assert max(freed) < SECOND_PASS_SECONDS + SLACK_SECONDS
    assert {each.next_ended.status for each in late} == {"SUCCEEDED"}
    assert [(each.holders, each.waiters) for each in late] == [([], [])] * len(late)


def test_a_barred_one_is_refused_as_long_as_nobody_else_used_the_lock(underway: Underway) -> None:
    late: list[Late] = underway["late, refused"]
    assert [each.leaked for each in late] == [False] * len(late)
    assert max(each.freed_seconds for each in late) < SLACK_SECONDS


def test_a_newer_holder_keeps_its_lock_and_the_dead_waiter_goes(underway: Underway) -> None:
    late: list[LateBehind] = underway["late, taken"]
    assert [each.queued for each in late] == [[each.execution] for each in late]
    for each in late:
        assert [renewal["renewed"] for renewal in each.renewals] == [True, True]
        assert each.released["released"] is True
        assert (each.waiters, each.holders) == ([], [])


def test_without_a_second_look_it_is_still_held_by_the_dead(underway: Underway) -> None:
    late: list[LateUnlooked] = underway["late, no second look"]
    for each in late:
        assert each.held_seconds >= STILL_HELD_SECONDS > SECOND_PASS_SECONDS
        assert (each.refusal["acquired"], each.refusal["reason"]) == (False, "HELD")
        assert [holder["owner_name"] for holder in each.refusal["holders"]] == [each.execution]
