"""Correction durable_history, and what durable_invocations and durable_operations add to it.

AWS's own conformance tests (`make conformance`) ask for more, and need longer.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.localaws.tests.durable import call, ended, start
from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]
HISTORY = "durable_history"


def events(bench: Workbench, arn: str) -> list[tuple[str, Any]]:
    """What happened, each with its details."""
    history = bench.functions.get_durable_execution_history(DurableExecutionArn=arn)["Events"]
    return [(event["EventType"], event[f"{event['EventType']}Details"]) for event in history]


def fails_once(bench: Workbench, notes: Path, **limits: int) -> list[tuple[str, Any]]:
    """The events of a step that fails once, and of a callback that nobody completes."""
    arn = start(bench, "fails_once_then_hears_nothing", notes=str(notes), limits=limits)
    ended(bench, arn, seconds=10)
    return events(bench, arn)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def test_each_attempt_and_each_end_is_an_event(corrected: Workbench, notes: Path) -> None:
    found = fails_once(corrected, notes, timeout=1)
    assert [kind for kind, _ in found if not kind.startswith(("Execution", "Invocation"))] == [
        "StepStarted",
        "StepFailed",
        "StepStarted",
        "StepSucceeded",
        "ContextStarted",
        "CallbackStarted",
        "CallbackTimedOut",
        "ContextFailed",
    ]
    told = dict(found)
    assert told["StepFailed"]["RetryDetails"]["CurrentAttempt"] == 1
    assert told["StepSucceeded"]["RetryDetails"] == {"CurrentAttempt": 2}
    assert told["CallbackStarted"]["Timeout"] == 1
    assert told["CallbackTimedOut"]["Error"]["Payload"]["ErrorType"] == "Callback.Timeout"


def test_control_attempts_are_not_told(left_out: WithoutCorrection, notes: Path) -> None:
    told = dict(fails_once(left_out(HISTORY), notes, timeout=1))
    assert "StepFailed" not in told
    assert "RetryDetails" not in told["StepSucceeded"]
    assert "Timeout" not in told["CallbackStarted"]


def test_a_callback_without_heartbeats_times_out(corrected: Workbench, notes: Path) -> None:
    told = dict(fails_once(corrected, notes, heartbeat_timeout=1))
    assert told["CallbackStarted"]["HeartbeatTimeout"] == 1
    assert told["CallbackTimedOut"]["Error"]["Payload"]["ErrorType"] == "Callback.Heartbeat"
    assert call(corrected, "waits", n=1) == 2, "others go on"


def dead_invocation(bench: Workbench, notes: Path) -> Any:
    """The error of the invocation that ended with its process."""
    arn = start(bench, "dies_once", notes=str(notes))
    ended(bench, arn, seconds=10)
    [first, *_] = [details for kind, details in events(bench, arn) if kind == "InvocationCompleted"]
    return first["Error"]["Payload"]


def test_an_invocation_that_died_tells_the_runtimes_error(
    corrected: Workbench, notes: Path
) -> None:
    assert dead_invocation(corrected, notes)["ErrorType"] == "Runtime.ExitError"


def test_control_its_error_has_no_type(left_out: WithoutCorrection, notes: Path) -> None:
    assert "ErrorType" not in dead_invocation(left_out(HISTORY), notes)


def test_a_polled_condition_retains_its_state(corrected: Workbench) -> None:
    assert ended(corrected, start(corrected, "polls"))["Result"] == "2"


def test_control_a_condition_is_polled_for_ever(left_out: WithoutCorrection) -> None:
    bench = left_out("durable_operations")
    assert ended(bench, start(bench, "polls"), seconds=5)["Status"] == "RUNNING"
