"""However a workflow ends, its lock is free soon, and not before its work has ended."""

from __future__ import annotations

import time

import pytest

from fairlock.clock import stored_end_ms
from tests.e2e.conftest import Tell
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.lifetimes.conftest import FOLLOWED_EVERY, REAPED
from tests.e2e.lifetimes.contested_lock import (
    ALIKE_TIMES,
    OVER_SECONDS,
    TIMES,
    TOLERANCE_SECONDS,
    ContestedLock,
)
from tests.e2e.lifetimes.late_acquires import (
    STILL_HELD_SECONDS,
    Late,
    LateBehind,
    LateWithoutSecondPass,
    Replayed,
)
from tests.e2e.lifetimes.stack import (
    EXPRESS_LEASE_SECONDS,
    FALLBACK_SECONDS,
    LONG_LEASE_SECONDS,
    PLAIN_LEASE_SECONDS,
)
from tests.e2e.lifetimes.workflow_deaths import WITHIN_SECONDS, Death, Express, Outlived
from tests.e2e.scenario_runs import SECOND_PASS_SECONDS, ScenarioRuns, wait_for_reap_passes

# A lock lives as long as the workflow that holds it, however that one dies.

FOLLOWED = len(range(0, TIMES, FOLLOWED_EVERY))
ENDS = {
    "in the work": ("ABORTED", None),
    "in the wait": ("ABORTED", None),
    "in acquire": ("ABORTED", None),
    "in release": ("ABORTED", None),
    "by its timeout": ("TIMED_OUT", None),
    "by States.Runtime": ("FAILED", "States.Runtime"),
    "with its task": ("FAILED", "Runtime.ExitError"),
}


@pytest.mark.parametrize("how", REAPED)
def test_its_lock_is_free_at_once_and_the_next_one_works(
    runs: ScenarioRuns, how: str, tell: Tell
) -> None:
    deaths: list[Death] = runs[f"dies {how}"]
    assert {(death.ended.status, death.ended.error) for death in deaths} == {ENDS[how]}
    held = [death.seconds for death in deaths if death.seconds is not None]
    assert len(held) == TIMES, "some are still held"
    tell(f"a workflow dies {how}: held", held)
    following = [death.next_seconds for death in deaths if death.next_seconds is not None]
    assert len(following) == FOLLOWED
    tell(f"a workflow dies {how}: until the next one works", following)
    assert max(held + following) < WITHIN_SECONDS
    assert {death.next_ended.status for death in deaths if death.next_ended} == {"SUCCEEDED"}


@pytest.mark.parametrize("how", REAPED)
def test_nothing_of_it_is_left(runs: ScenarioRuns, how: str) -> None:
    deaths: list[Death] = runs[f"dies {how}"]
    assert [(death.holders, death.waiters) for death in deaths] == [([], [])] * TIMES
    for death in deaths:
        wait_until(lambda death=death: death.claims == [])  # type: ignore[misc]  # the default binds this one


@pytest.mark.parametrize("how", REAPED)
def test_of_an_unnoticed_death_the_lock_is_still_taken(runs: ScenarioRuns, how: str) -> None:
    deaths: list[Death] = runs[f"dies {how}, unnoticed"]
    for death in deaths:
        assert (death.ended.status, death.ended.error) == ENDS[how]
        assert death.seconds is None
        assert death.execution in death.left


def test_a_release_that_lands_late_changes_nothing_for_the_next_one(runs: ScenarioRuns) -> None:
    deaths: list[Death] = runs["dies in release"]
    followed = [death for death in deaths if death.next_ended is not None]
    assert [death.meanwhile for death in followed] == [[death.follower] for death in followed]
    assert len(followed) == FOLLOWED


def test_a_machine_that_is_watched_is_reaped_and_the_others_are_not(
    runs: ScenarioRuns, tell: Tell
) -> None:
    watched: list[Death] = runs["dies watched"]
    held = [death.seconds for death in watched if death.seconds is not None]
    assert len(held) == ALIKE_TIMES
    tell("a watched workflow dies in the work: held", held)
    unwatched: list[Death] = runs["dies unwatched"]
    assert [death.seconds for death in unwatched] == [None] * ALIKE_TIMES
    assert [death.left for death in unwatched] == [[death.execution] for death in unwatched]


# A death that no event reports: the lock is free when its lease is over.


def test_without_any_event_a_lock_is_free_for_a_caller_after_one_lease(
    runs: ScenarioRuns, tell: Tell
) -> None:
    outlived: list[Outlived] = runs["unnoticed, caller"]
    check_granted_at_the_first_question_after_the_lease(outlived)
    refused = [each.early for each in outlived if each.early and not each.early["acquired"]]
    assert {refusal["reason"] for refusal in refused} <= {"HELD"}
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )


def test_without_any_event_a_lock_goes_to_a_waiting_workflow_after_a_lease_and_a_poll(
    runs: ScenarioRuns, tell: Tell
) -> None:
    outlived: list[Outlived] = runs["unnoticed, workflow"]
    check_granted_at_the_first_question_after_the_lease(outlived)
    tell(
        f"all events lost, lease {PLAIN_LEASE_SECONDS} s, poll {FALLBACK_SECONDS} s, queue: held",
        [each.seconds for each in outlived],
    )


def check_granted_at_the_first_question_after_the_lease(outlived: list[Outlived]) -> None:
    assert outlived
    assert {each.asked for each in outlived} == {1}
    for each in outlived:
        assert each.granted_at >= each.lease_ends_at + TOLERANCE_SECONDS


def test_the_lock_of_a_running_workflow_is_not_free_then(runs: ScenarioRuns) -> None:
    answers = runs["unnoticed, running"]
    assert {(answer["acquired"], answer["reason"]) for answer in answers} == {(False, "HELD")}


def test_an_express_workflow_that_dies_leaves_its_lock_to_the_lease(
    runs: ScenarioRuns, tell: Tell
) -> None:
    executions: list[Express] = runs["express"]
    assert [(run.ended.status, run.ended.error) for run in executions] == [
        ("TIMED_OUT", None),
        ("FAILED", "States.Runtime"),
    ] * (TIMES // 2)
    assert [run.execution_arns for run in executions] == [[None]] * TIMES
    outlived = [run.outlived for run in executions]
    check_granted_at_the_first_question_after_the_lease(outlived)
    tell(
        f"an Express workflow dies, lease {EXPRESS_LEASE_SECONDS} s, direct caller: held",
        [each.seconds for each in outlived],
    )


# A branch is stopped because its sibling failed, and its execution goes on.
#
# No Catch runs in it, and no one is told: an execution that runs is not reaped, nor robbed.

GOES_ON_SECONDS = 40
LAPSED_SECONDS = stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000 + OVER_SECONDS


def goes_on(contested: ContestedLock, execution: str) -> bool:
    return "GoesOn" in contested.deployment.states_entered(execution)


@pytest.mark.parametrize("machine", ["PlainSibling", "KeepAliveSibling"])
def test_what_the_branch_held_is_taken_until_the_execution_ends(
    deployment: Deployment, machine: str
) -> None:
    """Which is documented: the guard belongs around the whole, or a Catch into the branch."""
    contested = ContestedLock(deployment)
    execution = contested.start_inside(machine, seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(contested, execution))
    time.sleep(LAPSED_SECONDS)  # A lease ends by the clock and by nothing else.
    assert (contested.ask()["acquired"], deployment.is_running(execution)) == (False, True)
    contested.stop(execution)
    wait_until(lambda: contested.holders() == [])


def test_what_it_is_handed_later_is_free_after_its_lease(deployment: Deployment) -> None:
    """No one was there to be notified, so Step Functions is not asked either."""
    contested = ContestedLock(deployment)
    owner_id = contested.ask(lease_seconds=600)["owner_id"]
    execution = contested.start_behind("PlainSibling", seconds=GOES_ON_SECONDS)
    wait_until(lambda: goes_on(contested, execution))
    deployment.invoke("Release", lock_name=contested.lock, owner_id=owner_id)
    assert contested.holders() == [execution]
    contested.ask_until_granted()
    assert deployment.is_running(execution)
    contested.stop(execution)


# An acquire that was under way when its workflow died lands after the reaper's first reap pass.


def test_what_it_takes_is_free_after_the_second_look(runs: ScenarioRuns, tell: Tell) -> None:
    late: list[Late] = runs["late, free"]
    assert [each.leaked for each in late] == [True] * len(late)
    freed = [each.freed_seconds for each in late]
    tell("acquire lands after the first reap pass: from the death until the next one works", freed)
    assert len(freed) == TIMES // 2
    assert min(freed) > SECOND_PASS_SECONDS - 1
    assert max(freed) < LONG_LEASE_SECONDS
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


# Events of dead workflows may come twice, late and in any order.

REAP_PASSES = 1 + 1 + 2 + 1 + 2
"""Two by its own event, four by the events sent again, and a second pass that was sent."""


def test_events_that_come_again_free_nothing_of_those_who_came_later(runs: ScenarioRuns) -> None:
    replayed: list[Replayed] = runs["replayed"]
    assert [(each.third.status, each.fourth.status) for each in replayed] == (
        [("SUCCEEDED", "SUCCEEDED")] * ALIKE_TIMES
    )
    assert [each.overlap_seconds for each in replayed] == [0] * ALIKE_TIMES


def test_all_those_events_were_processed(deployment: Deployment, runs: ScenarioRuns) -> None:
    replayed: list[Replayed] = runs["replayed"]
    executions = [execution for each in replayed for execution in each.dead]
    wait_for_reap_passes(deployment, executions, least=REAP_PASSES)


def test_forged_messages_about_a_holder_that_runs_free_nothing(runs: ScenarioRuns) -> None:
    """That they free the lock of one that is over, `test_workflow_deaths.py` shows."""
    replayed: list[Replayed] = runs["event of the living"]
    assert [(each.third.status, each.fourth.status) for each in replayed] == (
        [("SUCCEEDED", "SUCCEEDED")] * len(replayed)
    )
    assert all(each.overlap_seconds == 0 for each in replayed)
