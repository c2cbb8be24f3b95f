"""What the demo tells of its executions: hand-overs, incidents, the bill."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.demo.bill import side_by_side
from examples.demo.facts import Call, Charge, Execution, Grant, Interval, Role
from examples.demo.handovers import Handover, handovers, idle_between
from examples.demo.history import execution_from_history, roles_of_states
from tests.demo.builders import (
    STORY,
    guarded_execution,
    turn_taking,
)

# Histories become facts.

ROLES = {"Guard: Acquire": Role.ACQUIRE, "Charge": Role.CHARGE, "Guard: Release": Role.RELEASE}
REFUSED = {"acquired": False, "reason": "HELD", "retry_after_seconds": 1}
GRANTED = {"acquired": True, "fencing_token": 7, "acquired_at": "1970-01-01T00:00:02.000Z"}
CHARGED: dict[str, Any] = {
    "charge_id": "alice-1",
    "amount": 10,
    "fencing_token": 7,
    "balance_read": 1000,
    "change_read": "opening",
    "balance_written": 990,
    "read_at_ms": 2_200,
    "written_at_ms": 2_900,
}


def event(at_ms: int, kind: str, **details: object) -> dict[str, Any]:
    name = kind[0].lower() + kind[1:] + "EventDetails"
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return {"timestamp": moment, "type": kind} | ({name: details} if details else {})


def task(
    state: str, asked_ms: int, answered_ms: int, answer: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return [
        event(asked_ms, "TaskStateEntered", name=state),
        event(asked_ms, "TaskScheduled"),
        event(answered_ms, "TaskSucceeded", output=json.dumps({"Payload": answer})),
    ]


def read(*events: dict[str, Any]) -> Execution:
    return execution_from_history(name="alice-1", account_id="alice", events=events, roles=ROLES)


def test_a_guarded_execution_is_read_from_its_history() -> None:
    execution = read(
        event(0, "ExecutionStarted"),
        event(1, "PassStateEntered", name="Guard: Enter"),
        *task("Guard: Acquire", 10, 20, REFUSED),
        event(21, "ChoiceStateEntered", name="Guard: Acquired?"),
        event(22, "WaitStateEntered", name="Guard: Wait"),
        *task("Guard: Acquire", 1_990, 2_010, GRANTED),
        event(2_011, "ChoiceStateEntered", name="Guard: Acquired?"),
        *task("Charge", 2_020, 3_000, {**CHARGED, "account_id": "alice"}),
        *task("Guard: Release", 3_010, 3_050, {"released": True}),
        event(3_060, "ExecutionSucceeded", output="{}"),
    )
    assert (execution.status, execution.error, execution.transitions) == ("SUCCEEDED", None, 8)
    assert execution.grant == Grant(fencing_token=7, acquired_at_ms=2_000, answered_at_ms=2_010)
    assert execution.refusals == (
        Call(role=Role.ACQUIRE, asked_at_ms=10, answered_at_ms=20, answer=REFUSED),
    )
    assert execution.charge == Charge(**CHARGED)
    assert execution.waited == Interval(start_ms=10, end_ms=2_010)
    assert execution.held == Interval(start_ms=2_010, end_ms=3_010)
    assert execution.worked == Interval(start_ms=2_200, end_ms=2_900)
    assert execution.released_at_ms == 3_050


def test_a_stopped_execution_holds_until_it_was_stopped_and_has_an_open_call() -> None:
    execution = read(
        event(0, "ExecutionStarted"),
        *task("Guard: Acquire", 1_990, 2_010, GRANTED),
        event(2_020, "TaskStateEntered", name="Charge"),
        event(2_020, "TaskScheduled"),
        event(2_500, "ExecutionAborted", error="Demo", cause="stopped"),
    )
    assert (execution.status, execution.error) == ("ABORTED", "Demo")
    assert execution.held == Interval(start_ms=2_010, end_ms=2_500)
    assert execution.calls_of(Role.CHARGE) == (Call(role=Role.CHARGE, asked_at_ms=2_020),)
    assert (execution.charge, execution.worked) == (None, None)


def test_a_failed_task_keeps_its_error_and_its_retry_is_a_request_and_a_transition() -> None:
    execution = read(
        event(0, "ExecutionStarted"),
        event(1, "TaskStateEntered", name="Guard: Acquire"),
        event(2, "TaskScheduled"),
        event(3, "TaskFailed", error="LockStoreUnavailable", cause=""),
        event(1_003, "TaskScheduled"),
    )
    assert (execution.status, execution.transitions) == ("RUNNING", 2)
    assert execution.calls == (
        Call(role=Role.ACQUIRE, asked_at_ms=2, answered_at_ms=3, error="LockStoreUnavailable"),
        Call(role=Role.ACQUIRE, asked_at_ms=1_003),
    )


def test_states_are_known_by_the_function_they_call_wherever_they_are() -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:"

    def calling(function: str) -> dict[str, Any]:
        return {"Type": "Task", "Arguments": {"FunctionName": function}}

    inner = {"Charge": calling(f"{arn}charge")}
    each = {"Type": "Map", "ItemProcessor": {"States": inner}}
    definition = {
        "States": {
            "Take": calling(f"{arn}locks-acquire"),
            "Give": calling(f"{arn}locks-release:$LATEST"),
            "Other": calling("locks-acquire-too"),
            "Work": {"Type": "Parallel", "Branches": [{"States": {"Each": each}}]},
        }
    }
    names = ("locks-acquire", "locks-release", "charge")
    roles = (Role.ACQUIRE, Role.RELEASE, Role.CHARGE)
    found = roles_of_states(definition, dict(zip(roles, names, strict=True)))
    assert found == dict(zip(("Take", "Give", "Charge"), roles, strict=True))


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


@pytest.mark.parametrize(
    ("asked_ms", "granted_ms"), [(1_100, 1_200), (0, 1_099)], ids=["no one waited", "an overlap"]
)
def test_what_is_no_handover_is_not_counted(asked_ms: int, granted_ms: int) -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    second = guarded_execution("a-2", asked_ms=asked_ms, granted_ms=granted_ms)
    assert handovers([first, second]) == []


# What an execution costs is counted in its history.


def test_the_runs_stand_side_by_side_by_their_cheapest_dearest_and_mean_execution() -> None:
    assert side_by_side(STORY.runs) == {
        "state transitions an execution": ("1", "5 to 11 (mean 7.7)", "4"),
        "Lambda requests an execution": ("1", "3 to 6 (mean 4.3)", "3"),
        "of these to ask for the lock": ("0", "1 to 4 (mean 2.3)", "1"),
        "lock idle between holders (median)": ("-", "500 ms", "40 ms"),
        "all done after": ("1.1 s", "4.1 s", "3.2 s"),
    }
