"""Corrections durable_invocations, durable_operations and durable_events.

The functions use AWS's own SDK, so what it expects of Lambda is tried as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.localaws.tests.durable import call, callback_of, ended, start
from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]
INVOCATIONS = "durable_invocations"
OPERATIONS = "durable_operations"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def test_a_synchronous_invocation_answers_with_the_result(corrected: Workbench) -> None:
    assert call(corrected, "waits", n=1) == 2


def test_control_a_synchronous_invocation_does_not_answer(left_out: WithoutCorrection) -> None:
    assert call(left_out(INVOCATIONS), "waits", n=1) != 2


def test_an_asynchronous_invocation_runs_to_its_end(corrected: Workbench) -> None:
    end = ended(corrected, start(corrected, "waits", n=1))
    assert (end["Status"], end["Result"]) == ("SUCCEEDED", "2")


def test_control_an_asynchronous_invocation_has_no_execution(left_out: WithoutCorrection) -> None:
    assert start(left_out(INVOCATIONS), "waits", n=1) == "None"


def test_a_function_that_died_is_invoked_again(corrected: Workbench, notes: Path) -> None:
    assert call(corrected, "dies_once", notes=str(notes)) == "alive"
    assert notes.read_text() == "x"


def test_executions_run_beside_each_other(corrected: Workbench, notes: Path) -> None:
    arns = [start(corrected, "meets_another", notes=str(notes)) for _ in range(2)]
    assert {ended(corrected, arn)["Status"] for arn in arns} == {"SUCCEEDED"}
    assert notes.read_text() == "(())"


def test_a_callback_that_is_completed_meanwhile_starts_no_second_invocation(
    corrected: Workbench, notes: Path
) -> None:
    arn = start(corrected, "is_called_back_while_busy", notes=str(notes))
    callback = callback_of(corrected, arn)
    corrected.functions.send_durable_execution_callback_success(CallbackId=callback, Result=b"yes")
    notes.with_suffix(".go").touch()
    assert ended(corrected, arn)["Result"] == '"yes"'
    history = corrected.functions.get_durable_execution_history(DurableExecutionArn=arn)["Events"]
    assert [event["EventType"] for event in history].count("InvocationCompleted") == 1
    assert notes.read_text() == "x"


def answer_without_timeout(bench: Workbench) -> object:
    arn = start(bench, "waits_without_timeout")
    callback = callback_of(bench, arn)
    time.sleep(1.5)  # Without the correction it is over after at most a second.
    try:
        bench.functions.send_durable_execution_callback_success(CallbackId=callback, Result=b"yes")
    except bench.functions.exceptions.CallbackTimeoutException:
        return "timed out"
    return ended(bench, arn)["Result"]


def test_a_callback_without_a_timeout_waits(corrected: Workbench) -> None:
    assert answer_without_timeout(corrected) == '"yes"'


def test_control_a_callback_without_a_timeout_times_out(left_out: WithoutCorrection) -> None:
    assert "timed out" in str(answer_without_timeout(left_out(OPERATIONS)))


def attempts(bench: Workbench, notes: Path, *, patience_seconds: float) -> tuple[str, str]:
    arn = start(bench, "tries_at_most_twice", notes=str(notes))
    return str(ended(bench, arn, seconds=patience_seconds).get("Result")), notes.read_text()


def test_a_step_that_runs_at_most_once_has_as_many_attempts_as_it_may(
    corrected: Workbench, notes: Path
) -> None:
    assert attempts(corrected, notes, patience_seconds=30) == ('"failed"', "xx")


def test_control_attempts_are_not_counted(left_out: WithoutCorrection, notes: Path) -> None:
    assert attempts(left_out(OPERATIONS), notes, patience_seconds=5) != ('"failed"', "xx")


def checkpoint_with_old_token(bench: Workbench) -> str:
    """What the refusal of an outdated token says."""
    arn = start(bench, "waits_without_timeout")
    with pytest.raises(bench.functions.exceptions.InvalidParameterValueException) as caught:
        bench.functions.checkpoint_durable_execution(
            DurableExecutionArn=arn, CheckpointToken="b2xk", Updates=[]
        )
    return str(caught.value.response["Error"]["Message"])


def test_an_outdated_token_is_invalid(corrected: Workbench) -> None:
    assert checkpoint_with_old_token(corrected) == "Invalid checkpoint token"


def test_control_an_outdated_token_has_another_message(left_out: WithoutCorrection) -> None:
    assert checkpoint_with_old_token(left_out(OPERATIONS)) != "Invalid checkpoint token"


def reported(bench: Workbench, *, seconds: float = 30) -> list[tuple[str, str]]:
    """The statuses that reach a queue, each with the field that tells the end."""
    queue = bench.queue()
    policy = {
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": queue.arn,
            }
        ]
    }
    bench.queues.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": json.dumps(policy)})
    events = bench.aws.client("events")
    pattern = {"source": ["aws.lambda"], "detail-type": ["Durable Execution Status Change"]}
    name = f"rule-{queue.arn.rpartition(':')[2]}"
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": queue.arn}])
    succeeds, fails = start(bench, "waits", n=1), start(bench, "fails")
    stopped = start(bench, "waits_without_timeout")
    times_out = start(bench, "waits_without_timeout", execution_seconds=1)
    callback_of(bench, stopped)
    bench.functions.stop_durable_execution(DurableExecutionArn=stopped)
    for arn in (succeeds, fails, times_out):
        ended(bench, arn)
    found: list[tuple[str, str]] = []
    names = dict(
        zip((succeeds, fails, stopped, times_out), ("one", "two", "three", "four"), strict=True)
    )
    deadline = time.monotonic() + seconds
    while len(found) < 8 and time.monotonic() < deadline:
        for message in bench.received(queue, seconds=1):
            detail = json.loads(message["Body"])["detail"]
            found.append((names[detail["durableExecutionArn"]], detail["status"]))
            bench.queues.delete_message(QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"])
    return sorted(found)


def test_each_change_of_a_status_is_reported(corrected: Workbench) -> None:
    assert reported(corrected) == sorted(
        [
            *((name, "RUNNING") for name in ("one", "two", "three", "four")),
            ("one", "SUCCEEDED"),
            ("two", "FAILED"),
            ("three", "STOPPED"),
            ("four", "TIMED_OUT"),
        ]
    )


def test_control_nothing_is_reported(left_out: WithoutCorrection) -> None:
    assert reported(left_out("durable_events"), seconds=2) == []


# Correction durable_history, and what durable_invocations and durable_operations add to it.
#
# AWS's own conformance tests (`make conformance`) ask for more, and need longer.


HISTORY = "durable_history"


def events(bench: Workbench, arn: str) -> list[tuple[str, Any]]:
    """What happened, each with its details."""
    history = bench.functions.get_durable_execution_history(DurableExecutionArn=arn)["Events"]
    return [(event["EventType"], event[f"{event['EventType']}Details"]) for event in history]


def fails_once(bench: Workbench, notes: Path, **limits: int) -> list[tuple[str, Any]]:
    """The events of a step that fails once, and of a callback that no one completes."""
    arn = start(bench, "fails_once_then_hears_nothing", notes=str(notes), limits=limits)
    ended(bench, arn, seconds=30)
    return events(bench, arn)


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
    ended(bench, arn, seconds=30)
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
