"""The definition of a guard that waits in the queue."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from leasehold.cdk import LockGuard, Waiting
from tests.unit.cdk.asl import happy_path, machine_of
from tests.unit.cdk.guard_factory import GuardFactory

Json = dict[str, Any]


def next_period(number: int, pause_seconds: int) -> Json:
    return {
        "ErrorEquals": ["States.Timeout"],
        "IntervalSeconds": pause_seconds,
        "BackoffRate": 1,
        "MaxAttempts": number - 1,
    }


def acquire_of(guard: LockGuard) -> Json:
    """The definition of a guard's Acquire."""
    [acquire] = [
        state.to_state_json()
        for state in sfn.State.find_reachable_states(guard.start_state)
        if state.state_id.endswith(": Acquire")
    ]
    return dict(acquire)


def test_a_bare_task_costs_three_more_transitions(forms: Json) -> None:
    assert happy_path(machine_of(forms, "QueueFlatInJsonata")) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Charge",
        "Guard: Release",
    ]


def test_whatever_has_transitions_of_its_own_costs_four_more(forms: Json) -> None:
    assert happy_path(machine_of(forms, "QueueTaskWithOwnCatch")) == [
        "Guard: Enter",
        "Guard: Acquire",
        "Guard: Work",
        "Charge",
        "Guard: Release",
    ]


def test_acquire_sleeps_on_a_task_token_and_repeats_only_what_may_help(forms: Json) -> None:
    machine = machine_of(forms, "QueueFlat")
    [variable] = machine.assigned()
    polling = machine_of(forms, "Flat").states["Guard: Acquire"]
    acquire = machine.states["Guard: Acquire"]
    payload = acquire.pop("Arguments")["Payload"]
    assert payload == {
        "lock_name": f"{{% ${variable}.lock_name %}}",
        "owner_id": f"{{% ${variable}.owner_id %}}",
        "owner_name": "{% $states.context.Execution.Id %}",
        "execution_arn": "{% $states.context.Execution.Id %}",
        "entered_at_ms": f"{{% ${variable}.entered_at_ms %}}",
        "lease_seconds": 120,
        "limit": 3,
        "task_token": "{% $states.context.Task.Token %}",
    }
    assert acquire.pop("Resource").endswith(":states:::lambda:invoke.waitForTaskToken")
    answer = f"$merge([$states.result, {{'entered_at_ms': ${variable}.entered_at_ms}}])"
    unchanged, error = "{% $states.input %}", "{% $states.errorOutput %}"
    assert acquire == {
        "Type": "Task",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": 299,
        "Retry": [next_period(6, pause_seconds=1), *polling["Retry"]],
        "Catch": [
            {"ErrorEquals": ["LockLost"], "Output": unchanged, "Next": "Guard: Enter"},
            {"ErrorEquals": ["States.Timeout"], "Output": unchanged, "Next": "Guard: Give up"},
            {"ErrorEquals": ["States.ALL"], "Output": error, "Next": "Guard: Release after error"},
        ],
        "Assign": {variable: f"{{% {answer} %}}"},
        "Output": unchanged,
        "Next": "Charge",
    }


@pytest.mark.parametrize(
    ("max_wait_seconds", "fallback_seconds", "seconds", "number", "pause_seconds"),
    [
        (5, 10, 5, 1, 1),
        (8, 10, 8, 1, 1),
        (25, 10, 8, 3, 1),
        (1800, 300, 299, 6, 1),
        (7 * 86_400, 12 * 3600, 43_199, 14, 1),
    ],
)
def test_max_wait_is_as_many_tries_as_it_has_fallback_periods(  # noqa: PLR0917 - a row of a table
    guards: GuardFactory,
    max_wait_seconds: int,
    fallback_seconds: int,
    seconds: int,
    number: int,
    pause_seconds: int,
) -> None:
    waiting = Waiting.queue(fallback=Duration.seconds(fallback_seconds))
    guard = guards.guard(waiting=waiting, max_wait=Duration.seconds(max_wait_seconds))
    acquire = acquire_of(guard)
    assert acquire["TimeoutSeconds"] == seconds
    assert acquire["Retry"][0] == next_period(number, pause_seconds)
    assert abs(number * (seconds + pause_seconds) - pause_seconds - max_wait_seconds) <= 2


def test_the_queue_is_the_default_and_polling_that_of_express(guards: GuardFactory) -> None:
    standard = acquire_of(guards.guard(waiting=None))
    express = acquire_of(guards.guard(waiting=None, express=True))
    assert standard["Resource"].endswith("lambda:invoke.waitForTaskToken")
    assert express["Resource"].endswith("lambda:invoke")
