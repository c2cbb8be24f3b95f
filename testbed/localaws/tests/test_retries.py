"""Corrections retry_delays and error_names."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]


def failing_task(bench: Workbench, *retriers: dict[str, Any]) -> dict[str, Any]:
    name = bench.function("class Broken(Exception): pass\ndef handler(e, c): raise Broken('so')\n")
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": name},
        "Retry": list(retriers),
        "End": True,
    }
    return {"StartAt": "T", "States": {"T": task}}


def delays_seconds(bench: Workbench, retrier: dict[str, Any]) -> list[float]:
    """From each failure to the next attempt."""
    ended = bench.run(failing_task(bench, {"ErrorEquals": ["States.ALL"], **retrier}))
    assert (ended.status, ended.error) == ("FAILED", "Broken")
    return [
        (following["timestamp"] - event["timestamp"]).total_seconds()
        for event, following in itertools.pairwise(bench.events(ended.arn))
        if (event["type"], following["type"]) == ("TaskFailed", "TaskScheduled")
    ]


CAPPED = {"IntervalSeconds": 1, "BackoffRate": 2, "MaxDelaySeconds": 1, "MaxAttempts": 2}


def test_a_delay_never_exceeds_its_maximum(corrected: Workbench) -> None:
    delays = delays_seconds(corrected, CAPPED)
    assert len(delays) == 2
    assert all(1 <= delay < 2 for delay in delays)


def test_control_the_maximum_is_ignored(left_out: WithoutCorrection) -> None:
    assert delays_seconds(left_out("retry_delays"), CAPPED)[1] >= 2


def test_a_retrier_with_one_attempt_is_used_once(corrected: Workbench) -> None:
    assert len(delays_seconds(corrected, {"IntervalSeconds": 1, "MaxAttempts": 1})) == 1


def test_a_retrier_with_no_attempts_is_never_used(corrected: Workbench) -> None:
    assert delays_seconds(corrected, {"MaxAttempts": 0}) == []


def test_the_first_matching_retrier_decides(corrected: Workbench) -> None:
    first = {"ErrorEquals": ["Broken"], "MaxAttempts": 0}
    second = {"ErrorEquals": ["States.ALL"], "MaxAttempts": 5}
    assert corrected.run(failing_task(corrected, first, second)).error == "Broken"


def test_full_jitter_spreads_the_delays(corrected: Workbench) -> None:
    jittered = {"IntervalSeconds": 1, "MaxAttempts": 4, "BackoffRate": 1, "JitterStrategy": "FULL"}
    delays = delays_seconds(corrected, jittered)
    assert len(delays) == 4
    assert min(delays) < 1
    assert max(delays) < 2


def catches(bench: Workbench, error: str, *names: str) -> bool:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": error, "Cause": ""}}}
    catcher = {"ErrorEquals": list(names), "Next": "Caught"}
    definition = {
        "StartAt": "P",
        "States": {
            "P": {"Type": "Parallel", "Branches": [inside], "Catch": [catcher], "End": True},
            "Caught": {"Type": "Pass", "End": True},
        },
    }
    return bench.run(definition).status == "SUCCEEDED"


@pytest.mark.parametrize(
    ("error", "names", "caught"),
    [
        ("LockLost", ("LockLost",), True),
        ("LockLost", ("lockLost",), False),
        ("LockLost", ("Other", "LockLost"), True),
        ("LockLost", ("States.ALL",), True),
        ("LockLost", ("States.TaskFailed",), True),
        ("States.Timeout", ("States.TaskFailed",), False),
        ("States.HeartbeatTimeout", ("States.Timeout",), True),
        ("States.HeartbeatTimeout", ("States.TaskFailed",), False),
        ("States.Runtime", ("States.ALL",), False),
        ("States.Runtime", ("States.Runtime",), False),
        ("States.DataLimitExceeded", ("States.ALL",), False),
    ],
)
def test_a_catcher_takes_the_errors_it_names(
    corrected: Workbench,
    error: str,
    names: tuple[str, ...],
    caught: bool,  # noqa: FBT001 - an expected value
) -> None:
    assert catches(corrected, error, *names) is caught


def test_control_everything_can_be_caught(left_out: WithoutCorrection) -> None:
    assert catches(left_out("error_names"), "States.Runtime", "States.ALL")


def test_the_first_matching_catcher_decides(corrected: Workbench) -> None:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "Broken", "Cause": "so"}}}
    definition = {
        "StartAt": "P",
        "States": {
            "P": {
                "Type": "Parallel",
                "Branches": [inside],
                "Catch": [
                    {"ErrorEquals": ["Broken"], "Next": "First"},
                    {"ErrorEquals": ["States.ALL"], "Next": "Second"},
                ],
                "End": True,
            },
            "First": {"Type": "Pass", "End": True},
            "Second": {"Type": "Pass", "Result": "wrong", "End": True},
        },
    }
    assert corrected.run(definition).output == {"Error": "Broken", "Cause": "so"}
