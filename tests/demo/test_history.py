"""What the demo tells of its executions: hand-overs, incidents, the bill."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.demo.bill import Bill, bill, side_by_side
from examples.demo.checks import Check
from examples.demo.facts import Call, Charge, Execution, Grant, Incident, Interval, Role, Run, Story
from examples.demo.handovers import Handover, handovers, idle_between, median_idle_ms
from examples.demo.history import execution_from_history, roles_of_states
from examples.demo.incidents import error_kept, handed_on, stopped_at_work
from examples.demo.verdict import all_checks
from tests.demo.builders import LIMITS, guarded_execution, queued, timed_out, turn_taking

# Histories become facts, in both spellings of a Lambda task.

ROLES = {"Guard: Acquire": Role.ACQUIRE, "Charge": Role.CHARGE, "Guard: Release": Role.RELEASE}
GRANTED = {
    "acquired": True,
    "fencing_token": 1_700_000_000_000_007,
    "acquired_at": "1970-01-01T00:00:02.000Z",
}
CHARGED: dict[str, Any] = {
    "charge_id": "alice-1",
    "amount": 10,
    "fencing_token": 1_700_000_000_000_007,
    "balance_read": 1000,
    "change_read": "opening",
    "balance_written": 990,
    "read_at_ms": 2_200,
    "written_at_ms": 2_900,
    "account_id": "alice",
}


def event(at_ms: int, kind: str, **details: object) -> dict[str, Any]:
    name = kind[0].lower() + kind[1:] + "EventDetails"
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return {"timestamp": moment, "type": kind} | ({name: details} if details else {})


def task(
    prefix: str, state: str, asked_ms: int, answered_ms: int, answer: Mapping[str, Any]
) -> list[dict[str, Any]]:
    # The optimized integration wraps the function's answer, the plain function ARN does not.
    output = {"StatusCode": 200, "Payload": answer} if prefix == "Task" else answer
    return [
        event(asked_ms, "TaskStateEntered", name=state),
        event(asked_ms, f"{prefix}Scheduled"),
        event(answered_ms, f"{prefix}Succeeded", output=json.dumps(output)),
    ]


def read(events: list[dict[str, Any]]) -> Execution:
    return execution_from_history(name="alice-1", account_id="alice", events=events, roles=ROLES)


@pytest.mark.parametrize("prefix", ["Task", "LambdaFunction"])
def test_a_guarded_execution_is_read_from_its_history(prefix: str) -> None:
    refused = {"acquired": False, "reason": "HELD", "retry_after_seconds": 1}
    execution = read(
        [
            event(0, "ExecutionStarted"),
            event(1, "PassStateEntered", name="Guard: Enter"),
            *task(prefix, "Guard: Acquire", 10, 20, refused),
            event(21, "ChoiceStateEntered", name="Guard: Acquired?"),
            event(22, "WaitStateEntered", name="Guard: Wait"),
            *task(prefix, "Guard: Acquire", 1_990, 2_010, GRANTED),
            event(2_011, "ChoiceStateEntered", name="Guard: Acquired?"),
            *task(prefix, "Charge", 2_020, 3_000, CHARGED),
            *task(prefix, "Guard: Release", 3_010, 3_050, {"released": True}),
            event(3_060, "ExecutionSucceeded", output="{}"),
        ]
    )
    assert (execution.status, execution.error, execution.transitions) == ("SUCCEEDED", None, 8)
    assert execution.grant == Grant(
        fencing_token=1_700_000_000_000_007,
        acquired_at_ms=2_000,
        answered_at_ms=2_010,
    )
    assert execution.refusals == (
        Call(role=Role.ACQUIRE, asked_at_ms=10, answered_at_ms=20, answer=refused),
    )
    assert execution.charge == Charge(**{k: v for k, v in CHARGED.items() if k != "account_id"})
    assert execution.waited == Interval(start_ms=10, end_ms=2_010)
    assert execution.held == Interval(start_ms=2_010, end_ms=3_010)
    assert execution.worked == Interval(start_ms=2_200, end_ms=2_900)
    assert execution.released_at_ms == 3_050


def test_a_stopped_execution_holds_until_it_was_stopped_and_has_an_open_call() -> None:
    execution = read(
        [
            event(0, "ExecutionStarted"),
            *task("Task", "Guard: Acquire", 1_990, 2_010, GRANTED),
            event(2_020, "TaskStateEntered", name="Charge"),
            event(2_020, "TaskScheduled"),
            event(2_500, "ExecutionAborted", error="Demo", cause="stopped"),
        ]
    )
    assert (execution.status, execution.error) == ("ABORTED", "Demo")
    assert execution.held == Interval(start_ms=2_010, end_ms=2_500)
    assert execution.calls_of(Role.CHARGE) == (Call(role=Role.CHARGE, asked_at_ms=2_020),)
    assert execution.charge is None
    assert execution.worked is None


def test_a_failed_task_keeps_its_error_and_is_not_taken_for_an_answer() -> None:
    execution = read(
        [
            event(0, "ExecutionStarted"),
            event(1, "TaskStateEntered", name="Charge"),
            event(2, "TaskScheduled"),
            event(3, "TaskFailed", error="CardDeclined", cause="{}"),
            event(4, "ExecutionFailed", error="CardDeclined", cause="{}"),
        ]
    )
    assert (execution.status, execution.error) == ("FAILED", "CardDeclined")
    assert execution.calls == (
        Call(role=Role.CHARGE, asked_at_ms=2, answered_at_ms=3, error="CardDeclined"),
    )


def test_a_retry_counts_as_a_transition_and_as_a_request() -> None:
    execution = read(
        [
            event(0, "ExecutionStarted"),
            event(1, "TaskStateEntered", name="Guard: Acquire"),
            event(2, "TaskScheduled"),
            event(3, "TaskFailed", error="LockStoreUnavailable", cause=""),
            event(1_003, "TaskScheduled"),
        ]
    )
    assert execution.status == "RUNNING"
    assert execution.transitions == 2
    assert len(execution.calls_of(Role.ACQUIRE)) == 2


def test_states_are_known_by_the_function_they_call_wherever_they_are() -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:"
    definition = {
        "States": {
            "Take": {"Type": "Task", "Arguments": {"FunctionName": f"{arn}locks-acquire"}},
            "Give": {"Type": "Task", "Parameters": {"FunctionName": f"{arn}locks-release:$LATEST"}},
            "Other": {"Type": "Task", "Parameters": {"FunctionName": "locks-acquire-too"}},
            "Work": {
                "Type": "Parallel",
                "Branches": [
                    {"States": {"Each": {"Type": "Map", "ItemProcessor": {"States": {
                        "Charge": {"Type": "Task", "Resource": f"{arn}charge"},
                    }}}}},
                ],
            },
        }
    }  # fmt: skip
    functions = {
        Role.ACQUIRE: "locks-acquire",
        Role.RELEASE: "locks-release",
        Role.CHARGE: "charge",
    }
    assert roles_of_states(definition, functions) == {
        "Take": Role.ACQUIRE,
        "Give": Role.RELEASE,
        "Charge": Role.CHARGE,
    }


# How long a lock was idle is counted only while another caller waited for it.


def test_the_idle_time_is_from_the_question_for_release_to_the_arrival_of_the_next_grant() -> None:
    first, second = turn_taking(count=2, between_ms=40)
    assert handovers([second, first]) == [
        Handover(
            account_id="alice",
            departing="alice-1",
            follower="alice-2",
            idle=Interval(start_ms=1_100, end_ms=1_140),
        )
    ]
    assert idle_between(first, second) == Interval(start_ms=1_100, end_ms=1_140)
    assert idle_between(second, first) is None


def test_a_lock_that_no_one_waited_for_was_not_kept_from_anybody() -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    late = guarded_execution("a-2", asked_ms=1_100, granted_ms=1_200, released_ms=2_000)
    assert handovers([first, late]) == []


def test_an_overlap_is_no_handover() -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    early = guarded_execution("a-2", granted_ms=1_099, released_ms=2_000)
    assert handovers([first, early]) == []


def test_locks_change_hands_each_for_itself(queue_run: Run, polling_run: Run) -> None:
    assert len(handovers(queue_run.executions)) == 4
    assert median_idle_ms(queue_run.executions) == 40
    assert median_idle_ms(polling_run.executions) == 500


def test_without_a_handover_there_is_no_median(unguarded_run: Run) -> None:
    assert median_idle_ms(unguarded_run.executions) is None
    assert median_idle_ms([replace(guarded_execution(), calls=())]) is None


@pytest.mark.parametrize(("end_ms", "said"), [(57, "57 ms"), (999, "999 ms"), (1_000, "1.0 s")])
def test_an_interval_is_said_in_the_unit_that_fits(end_ms: int, said: str) -> None:
    assert str(Interval(start_ms=0, end_ms=end_ms)) == said


# The verdicts on a failed task and a stopped execution, and what each must not let pass.


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


# What an execution costs is counted in its history.


def test_every_call_and_every_transition_is_on_the_bill() -> None:
    waited_twice = guarded_execution(asked_ms=0, granted_ms=3_000, released_ms=4_000)
    assert bill(waited_twice) == Bill(transitions=9, acquires=3, releases=1, charges=1)
    assert bill(waited_twice).lambda_requests == 5


def test_the_runs_stand_side_by_side_by_their_cheapest_dearest_and_mean_execution(
    story: Story,
) -> None:
    assert side_by_side(story.runs) == {
        "state transitions an execution": ("1", "5 to 11 (mean 7.7)", "4"),
        "Lambda requests an execution": ("1", "3 to 6 (mean 4.3)", "3"),
        "of these to ask for the lock": ("0", "1 to 4 (mean 2.3)", "1"),
        "lock idle between holders (median)": ("-", "500 ms", "40 ms"),
        "all done after": ("1.1 s", "4.1 s", "3.2 s"),
    }


def test_a_run_of_no_one_has_an_empty_bill(queue_run: Run) -> None:
    empty = Run(title="Nobody", mode=queue_run.mode, executions=(), accounts=())
    assert set(side_by_side([empty]).values()) == {("-",), ("0.0 s",)}
