"""The death of a workflow is not heard of: its lock is free when its lease is over."""

from __future__ import annotations

from tests.e2e.lifetimes.conftest import Tell
from tests.e2e.lifetimes.mortals import EXPRESS_LEASE_SECONDS
from tests.e2e.lifetimes.scene import SLACK_SECONDS, TIMES, TOLERANCE_SECONDS
from tests.e2e.lifetimes.stack import FALLBACK_SECONDS, PLAIN_LEASE_SECONDS
from tests.e2e.lifetimes.underway import Underway
from tests.e2e.lifetimes.unnoticed import Express, Outlived


def test_without_any_event_a_lock_is_free_for_a_caller_after_one_lease(
    underway: Underway, tell: Tell
) -> None:
    outlived: list[Outlived] = underway["unnoticed, caller"]
    check_lease(outlived, lease_seconds=PLAIN_LEASE_SECONDS, more_seconds=0)
    refused = [each.early for each in outlived if each.early and not each.early["acquired"]]
    assert {refusal["reason"] for refusal in refused} == {"HELD"}
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )


def test_without_any_event_a_lock_goes_to_a_waiting_workflow_after_a_lease_and_a_poll(
    underway: Underway, tell: Tell
) -> None:
    outlived: list[Outlived] = underway["unnoticed, workflow"]
    check_lease(outlived, lease_seconds=PLAIN_LEASE_SECONDS, more_seconds=FALLBACK_SECONDS)
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, poll {FALLBACK_SECONDS} s, queue: held",
        [each.seconds for each in outlived],
    )


def check_lease(outlived: list[Outlived], *, lease_seconds: int, more_seconds: int) -> None:
    assert len(outlived) == TIMES
    for each in outlived:
        over_at = each.lease_ends_at + TOLERANCE_SECONDS
        assert over_at < each.granted_at < over_at + more_seconds + SLACK_SECONDS
        longest = lease_seconds + TOLERANCE_SECONDS + more_seconds + SLACK_SECONDS
        assert each.seconds < longest


def test_the_lock_of_a_running_workflow_is_not_free_then(underway: Underway) -> None:
    answers = underway["unnoticed, running"]
    assert {(answer["acquired"], answer["reason"]) for answer in answers} == {(False, "HELD")}


def test_an_express_workflow_that_dies_leaves_its_lock_to_the_lease(
    underway: Underway, tell: Tell
) -> None:
    runs: list[Express] = underway["express"]
    assert [(run.ended.status, run.ended.error) for run in runs] == [
        ("TIMED_OUT", None),
        ("FAILED", "States.Runtime"),
    ] * (TIMES // 2)
    assert [run.execution_arns for run in runs] == [[None]] * TIMES
    outlived = [run.outlived for run in runs]
    check_lease(outlived, lease_seconds=EXPRESS_LEASE_SECONDS, more_seconds=0)
    tell(
        f"an Express workflow dies, lease {EXPRESS_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )
