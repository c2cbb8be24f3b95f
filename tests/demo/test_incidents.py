"""The verdicts on a failed task and a stopped execution, and what each must not let pass."""

from dataclasses import replace

import pytest

from examples.demo.checks import Check
from examples.demo.facts import Execution, Incident, Role, Story
from examples.demo.incidents import error_kept, handed_on, stopped_at_work
from examples.demo.verdict import all_checks
from tests.demo.builders import LIMITS, guarded_execution, queued, timed_out


def without(execution: Execution, role: Role) -> Execution:
    return replace(execution, calls=tuple(c for c in execution.calls if c.role is not role))


def test_every_check_of_a_good_story_passes(story: Story) -> None:
    judged = all_checks(story, error="CardDeclined")
    assert {
        title: [c.claim for c in checks if not c.passed] for title, checks in judged.items()
    } == {
        "Without the guard": [],
        "Guard that polls": [],
        "Guard with a queue": [],
        "When something goes wrong": [],
    }


def test_an_error_that_lost_its_name_fails(failed: Incident) -> None:
    assert error_kept(failed, "CardDeclined").passed
    renamed = replace(failed, broken=replace(failed.broken, error="States.TaskFailed"))
    assert not error_kept(renamed, "CardDeclined").passed


def test_a_failing_task_that_did_not_release_fails(failed: Incident) -> None:
    kept = replace(failed, broken=without(failed.broken, Role.RELEASE))
    assert not error_kept(kept, "CardDeclined").passed


def test_a_task_that_succeeded_is_no_failing_task(failed: Incident) -> None:
    assert not error_kept(replace(failed, broken=guarded_execution()), "CardDeclined").passed


def test_an_execution_stopped_before_or_after_its_work_is_no_evidence(stopped: Incident) -> None:
    assert stopped_at_work(stopped).passed
    before = replace(stopped, broken=without(stopped.broken, Role.CHARGE))
    after = replace(stopped, broken=replace(guarded_execution(), status="ABORTED"))
    assert not stopped_at_work(before).passed
    assert not stopped_at_work(after).passed


def following(stopped: Incident, *in_vain_ms: int, granted_ms: int) -> Incident:
    """The next one asked once and got in; or it asked at these times in vain before."""
    late = guarded_execution(
        "erin-2", "erin", asked_ms=500, granted_ms=granted_ms, released_ms=granted_ms + 500
    )
    return replace(stopped, following=timed_out(late, *in_vain_ms) if in_vain_ms else queued(late))


def test_who_was_pushed_into_a_stopped_executions_place_passes(stopped: Incident) -> None:
    assert handed_on(stopped, LIMITS) == Check(
        claim="stopped execution: its lock was handed on before its lease was over, "
        "and the next one did not have to ask again",
        passed=True,
        evidence="in 600 ms after the stop, asked 1 time (lease and tolerance would have taken "
        "7.1 s, and a question of its own up to 10 s more)",
    )


# The lock was acquired at 95 ms: the lease is over at 6,095 ms, the clock tolerance at 8,095 ms.
@pytest.mark.parametrize(
    ("granted_ms", "passed"), [(1_001, True), (6_094, True), (6_095, False), (8_120, False)]
)
def test_the_next_one_must_be_in_before_the_lease_is_over(
    stopped: Incident, granted_ms: int, *, passed: bool
) -> None:
    assert handed_on(following(stopped, granted_ms=granted_ms), LIMITS).passed is passed


def test_one_who_got_in_by_its_own_second_question_fails(stopped: Incident) -> None:
    asked_twice = following(stopped, 500, granted_ms=1_600)
    check = handed_on(asked_twice, LIMITS)
    assert (check.passed, check.evidence[:38]) == (False, "in 600 ms after the stop, asked 2 time")


def test_one_who_got_in_by_the_lease_and_its_fallback_fails(stopped: Incident) -> None:
    check = handed_on(following(stopped, 500, granted_ms=10_600), LIMITS)
    assert (check.passed, check.evidence[:38]) == (False, "in 9.6 s after the stop, asked 2 times")


def test_a_poller_that_was_refused_before_it_got_in_fails(stopped: Incident) -> None:
    polled = guarded_execution("erin-2", "erin", asked_ms=500, granted_ms=1_600, released_ms=1_900)
    assert not handed_on(replace(stopped, following=polled), LIMITS).passed


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(500, 900), (1_050, 1_100)])
def test_a_next_one_that_did_not_wait_for_the_broken_one_is_no_evidence(
    stopped: Incident, asked_ms: int, granted_ms: int
) -> None:
    late = guarded_execution(
        "erin-2", "erin", asked_ms=asked_ms, granted_ms=granted_ms, released_ms=granted_ms + 500
    )
    check = handed_on(replace(stopped, following=late), LIMITS)
    assert (check.passed, check.evidence[:11]) == (False, "no evidence")


def test_without_a_grant_on_both_sides_there_is_no_evidence(stopped: Incident) -> None:
    never_held = replace(stopped, broken=without(stopped.broken, Role.ACQUIRE))
    never_in = replace(stopped, following=without(stopped.following, Role.ACQUIRE))
    assert not handed_on(never_held, LIMITS).passed
    assert not handed_on(never_in, LIMITS).passed
