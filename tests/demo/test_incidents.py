"""The verdicts on a failed task and a stopped execution, and what each must not let pass."""

from dataclasses import replace

import pytest

from examples.demo.facts import Execution, Incident, Role, Story
from examples.demo.incidents import error_kept, freed_in_time, stopped_at_work
from examples.demo.verdict import all_checks
from tests.demo.builders import LIMITS, guarded_execution, timed_out


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


def following(stopped: Incident, *asked_ms: int, granted_ms: int) -> Incident:
    """The next one asked at these times in vain, a fallback period each, and then got in."""
    late = guarded_execution("erin-2", "erin", granted_ms=granted_ms, released_ms=granted_ms + 500)
    return replace(stopped, following=timed_out(late, *asked_ms))


# The lock was acquired at 95 ms: lease and tolerance are over at 8,095 ms. Whoever asked just
# before asks again after 10 s and a pause, and has a second for the way.
@pytest.mark.parametrize(("granted_ms", "passed"), [(8_120, True), (20_095, True), (20_096, False)])
def test_the_next_one_must_be_in_a_fallback_period_after_lease_and_tolerance(
    stopped: Incident, granted_ms: int, *, passed: bool
) -> None:
    incident = following(stopped, 500, 8_095, granted_ms=granted_ms)
    assert freed_in_time(incident, LIMITS).passed is passed


def test_one_who_was_told_to_wait_after_lease_and_tolerance_fails(stopped: Incident) -> None:
    check = freed_in_time(following(stopped, 500, 8_096, granted_ms=19_200), LIMITS)
    assert not check.passed
    assert check.evidence.endswith(", 1 told to wait after that")


def test_a_poller_that_was_refused_after_lease_and_tolerance_fails(stopped: Incident) -> None:
    polled = guarded_execution("erin-2", "erin", asked_ms=500, granted_ms=9_700, released_ms=9_900)
    check = freed_in_time(replace(stopped, following=polled), LIMITS)
    assert not check.passed
    assert check.evidence.endswith(", 1 told to wait after that")


def test_a_call_that_failed_after_lease_and_tolerance_is_no_refusal(stopped: Incident) -> None:
    incident = following(stopped, 500, 8_500, granted_ms=9_200)
    first, failed, *others = incident.following.calls
    calls = (first, replace(failed, error="LockStoreUnavailable"), *others)
    bent = replace(incident, following=replace(incident.following, calls=calls))
    assert freed_in_time(bent, LIMITS).passed
    assert not freed_in_time(incident, LIMITS).passed


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(500, 900), (1_050, 1_100)])
def test_a_next_one_that_did_not_wait_for_the_broken_one_is_no_evidence(
    stopped: Incident, asked_ms: int, granted_ms: int
) -> None:
    late = guarded_execution(
        "erin-2", "erin", asked_ms=asked_ms, granted_ms=granted_ms, released_ms=granted_ms + 500
    )
    check = freed_in_time(replace(stopped, following=late), LIMITS)
    assert (check.passed, check.evidence[:11]) == (False, "no evidence")


def test_without_a_grant_on_both_sides_there_is_no_evidence(stopped: Incident) -> None:
    never_held = replace(stopped, broken=without(stopped.broken, Role.ACQUIRE))
    never_in = replace(stopped, following=without(stopped.following, Role.ACQUIRE))
    assert not freed_in_time(never_held, LIMITS).passed
    assert not freed_in_time(never_in, LIMITS).passed
