"""The definition of a guard that keeps its lock alive by a heartbeat beside the work."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration

from fairlock.cdk.guard.guard_arguments import checked_limit
from tests.unit.cdk.guard_forms import FUNCTION, RELEASE, GuardFactory, request_of
from tests.unit.cdk.template import (
    EvaluationError,
    Handling,
    Scope,
    definition_of,
    evaluate,
    handling,
    machine_of,
    ways_out_unreleased,
)

Json = dict[str, Any]

OWN = {"lock_name": "customer/7", "owner_id": "me"}
every_form = pytest.mark.parametrize(
    "form", ["KeepAliveFlat", "KeepAliveChain", "KeepAlivePollFlat"]
)


def branches(machine: Scope) -> tuple[Scope, Scope]:
    """The branch of the work, and that of the heartbeat."""
    work, heartbeat = (
        Scope(body["States"], body["StartAt"]) for body in machine.states["Guard: Work"]["Branches"]
    )
    return work, heartbeat


@every_form
def test_the_work_ends_with_the_release_that_ends_the_heartbeat_and_its_result_leaves_the_guard(
    forms: Json, form: str
) -> None:
    machine = machine_of(forms, form)
    [variable] = machine.assigned()
    release = branches(machine)[0].states["Guard: Release"]
    assert release["Arguments"]["Payload"]["keep_alive"] is True
    assert release["End"] is True
    assert "Guard: Release" not in machine.states
    for purpose in ("Release after error", "Give up"):
        assert "keep_alive" not in machine.states[f"Guard: {purpose}"]["Arguments"]["Payload"]
    work = machine.states["Guard: Work"]
    assert work["Output"] == "{% $states.result[0] %}"
    assert work["Catch"] == [
        {
            "ErrorEquals": [f"LockNotReleased.{variable}"],
            "Output": "{% $parse($states.errorOutput.Cause).result %}",
            "Next": "Guard: Not released",
        },
        {"ErrorEquals": ["States.DataLimitExceeded"], "Next": "Guard: Release after error"},
        {"ErrorEquals": ["States.ALL"], "Next": "Guard: Release after error"},
    ]


def test_the_heartbeat_sleeps_on_its_task_token_for_an_interval(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    heartbeat = branches(machine)[1].states["Guard: Heartbeat"]
    token = "{% $states.context.Task.Token %}"
    assert heartbeat["Arguments"] == {
        "FunctionName": f"{FUNCTION}:heartbeat",
        "Payload": request_of(machine, task_token=token),
    }
    assert heartbeat["Resource"].endswith(":states:::lambda:invoke.waitForTaskToken")
    assert (heartbeat["QueryLanguage"], heartbeat["TimeoutSeconds"]) == ("JSONata", 15)
    assert heartbeat["Retry"][-1] == {
        "ErrorEquals": ["States.ALL"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxDelaySeconds": 15,
        "MaxAttempts": 8,
        "JitterStrategy": "FULL",
    }
    outputs = [rule["Output"] for rule in heartbeat["Catch"]]
    assert outputs == [{"ended": True}, "{% $states.errorOutput %}", "{% $states.input %}"]
    assert heartbeat["End"] is True


@pytest.mark.parametrize(
    "answer",
    [{}, {**OWN, "owner_id": "another"}, {**OWN, "lock_name": "another"}, None, "text", []],
    ids=str,
)
def test_an_answer_to_another_acquisition_ends_no_heartbeat(forms: Json, answer: object) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    [variable] = machine.assigned()
    heartbeat = branches(machine)[1].states["Guard: Heartbeat"]
    ended = evaluate(heartbeat["Output"], states={"result": OWN}, variables={variable: OWN})
    assert ended == {"ended": True}
    with pytest.raises(EvaluationError, match="names another lock or another owner"):
        evaluate(heartbeat["Output"], states={"result": answer}, variables={variable: OWN})
    assert handling(heartbeat, "States.QueryEvaluationError") == Handling(8, "Guard: Heartbeat")


@every_form
def test_no_outage_ends_the_work_but_a_loss_does(forms: Json, form: str) -> None:
    heartbeat = branches(machine_of(forms, form))[1].states["Guard: Heartbeat"]
    assert handling(heartbeat, "States.Timeout") == Handling(0, "Guard: Heartbeat")
    for error in ("LockStoreUnavailable", "Lambda.TooManyRequestsException", "Sandbox.Timedout"):
        assert handling(heartbeat, error) == Handling(8, "Guard: Heartbeat")
    for error in ("LockLost", "InvalidRequest"):
        assert handling(heartbeat, error) == Handling(0, "Guard: Not kept alive")
    assert handling(heartbeat, "KeepAliveEnded") == Handling(0, "Guard: Heartbeat ended")


def test_the_limit_is_evaluated_once_for_acquire_and_heartbeat(guards: GuardFactory) -> None:
    limit = "{% $states.input.permits %}"
    guard = guards.guard(limit=limit, keep_alive=Duration.seconds(5))
    machine = definition_of(guard)
    [lock] = machine.states["Guard: Enter"]["Assign"].values()
    assert lock["limit"] == checked_limit(limit, shared=False)
    kept = guard.fencing_token.replace("fencing_token", "limit")
    assert [each["limit"] for each in machine.requests()] == [kept, kept]


@pytest.mark.parametrize(("interval", "longest_pause"), [(1, 2), (5, 5), (20, 20), (60, 20)])
def test_repeats_of_a_heartbeat_are_no_slower_than_heartbeats(
    guards: GuardFactory, interval: int, longest_pause: int
) -> None:
    guard = guards.guard(keep_alive=Duration.seconds(interval), lease=Duration.minutes(3))
    heartbeat = branches(definition_of(guard))[1].states["Guard: Heartbeat"]
    assert heartbeat["TimeoutSeconds"] == interval
    assert heartbeat["Retry"][-1]["MaxDelaySeconds"] == longest_pause


def test_work_that_ends_past_the_release_is_noticed(forms: Json) -> None:
    machine = machine_of(forms, "KeepAliveFlat")
    states = machine.states["Guard: Work"]["Branches"][0]["States"]
    states["Charge"]["Next"], states["Enough"] = "Enough", {"Type": "Succeed"}
    escaped = ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE)
    assert escaped == {"Done"}
