"""The verdicts on a failed task and a stopped execution, and what each must not let pass."""

from dataclasses import replace

import pytest

from examples.demo.facts import Execution, Incident, Role, Story
from examples.demo.incidents import error_kept, freed_in_time, stopped_at_work
from examples.demo.verdict import all_checks
from tests.demo.builders import LEASE_SECONDS, TOLERANCE_SECONDS, guarded_execution

LIMITS = {"lease_seconds": LEASE_SECONDS, "tolerance_seconds": TOLERANCE_SECONDS}


def without(execution: Execution, role: Role) -> Execution:
    return replace(execution, calls=tuple(c for c in execution.calls if c.role is not role))


def test_every_check_of_a_good_story_passes(story: Story) -> None:
    judged = all_checks(story, error="CardDeclined")
    assert {
        title: [c.claim for c in checks if not c.passed] for title, checks in judged.items()
    } == {
        "Without the guard": [],
        "With the guard": [],
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


def following(stopped: Incident, *, asked_ms: int = 500, granted_ms: int) -> Incident:
    late = guarded_execution(
        "erin-2", "erin", asked_ms=asked_ms, granted_ms=granted_ms, released_ms=granted_ms + 500
    )
    return replace(stopped, following=late)


def slept_from(incident: Incident, asked_ms: int) -> Incident:
    """The same without the refusals after `asked_ms`, as if the next one had slept."""
    calls = incident.following.calls
    kept = tuple(
        c for c in calls if c not in incident.following.refusals or c.asked_at_ms < asked_ms
    )
    return replace(incident, following=replace(incident.following, calls=kept))


# The lock was acquired at 95 ms: lease and tolerance are over at 8,095 ms. A poller that was told
# just before to wait a second may come a little after 9,000 ms, but not much.
@pytest.mark.parametrize(("granted_ms", "passed"), [(8_120, True), (9_000, True), (10_200, False)])
def test_the_next_one_must_be_in_when_lease_and_tolerance_are_over(
    stopped: Incident, granted_ms: int, *, passed: bool
) -> None:
    incident = slept_from(following(stopped, granted_ms=granted_ms), 8_000)
    assert freed_in_time(incident, **LIMITS).passed is passed


def test_a_refusal_after_lease_and_tolerance_fails(stopped: Incident) -> None:
    incident = following(stopped, granted_ms=9_700)
    assert freed_in_time(slept_from(incident, 8_000), **LIMITS).evidence.endswith(
        " 0 late refusals"
    )
    check = freed_in_time(incident, **LIMITS)
    assert not check.passed
    assert check.evidence.endswith(", 1 late refusals")


@pytest.mark.parametrize(("asked_ms", "granted_ms"), [(500, 900), (1_050, 1_100)])
def test_a_next_one_that_did_not_wait_for_the_broken_one_is_no_evidence(
    stopped: Incident, asked_ms: int, granted_ms: int
) -> None:
    incident = following(stopped, asked_ms=asked_ms, granted_ms=granted_ms)
    check = freed_in_time(incident, **LIMITS)
    assert (check.passed, check.evidence[:11]) == (False, "no evidence")


def test_without_a_grant_on_both_sides_there_is_no_evidence(stopped: Incident) -> None:
    never_held = replace(stopped, broken=without(stopped.broken, Role.ACQUIRE))
    never_in = replace(stopped, following=without(stopped.following, Role.ACQUIRE))
    assert not freed_in_time(never_held, **LIMITS).passed
    assert not freed_in_time(never_in, **LIMITS).passed
