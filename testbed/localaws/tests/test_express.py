"""Correction express, and start_delay."""

from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]

PASS = {"StartAt": "P", "States": {"P": {"Type": "Pass", "End": True}}}
OWN_ARN = {
    "QueryLanguage": "JSONata",
    "StartAt": "P",
    "States": {"P": {"Type": "Pass", "Output": "{% $states.context.Execution.Id %}", "End": True}},
}


def run_sync(bench: Workbench, definition: dict[str, Any]) -> dict[str, Any]:
    machine = bench.machine(definition, kind="EXPRESS")
    return dict(bench.workflows.start_sync_execution(stateMachineArn=machine, input="[1]"))


def test_a_synchronous_execution_answers_its_output(corrected: Workbench) -> None:
    answer = run_sync(corrected, PASS)
    assert (answer["status"], answer["output"]) == ("SUCCEEDED", "[1]")


def test_its_arn_is_of_the_kind_express_inside_and_outside(corrected: Workbench) -> None:
    answer = run_sync(corrected, OWN_ARN)
    assert answer["output"] == f'"{answer["executionArn"]}"'
    assert answer["executionArn"].split(":")[5] == "express"


def test_a_failed_answer_has_an_error_and_no_output(corrected: Workbench) -> None:
    fails = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    answer = run_sync(corrected, fails)
    assert (answer["status"], answer["error"], answer["cause"]) == ("FAILED", "E", "c")
    assert "output" not in answer


def describe(bench: Workbench) -> str:
    arn = run_sync(bench, PASS)["executionArn"]
    try:
        return str(bench.workflows.describe_execution(executionArn=arn)["status"])
    except botocore.exceptions.ClientError as refused:
        return str(refused.response["Error"]["Code"])


def test_it_cannot_be_described(corrected: Workbench) -> None:
    assert describe(corrected) == "InvalidArn"


def test_control_it_is_described_like_a_standard_execution(left_out: WithoutCorrection) -> None:
    assert describe(left_out("express")) == "SUCCEEDED"


@pytest.mark.parametrize(
    "pattern", ["lambda:invoke.waitForTaskToken", "states:startExecution.sync"]
)
def test_it_may_not_wait_for_others(corrected: Workbench, pattern: str) -> None:
    task = {"Type": "Task", "Resource": f"arn:aws:states:::{pattern}", "End": True}
    answer = run_sync(corrected, {"StartAt": "T", "States": {"T": task}})
    assert (answer["status"], answer["error"]) == ("FAILED", "States.Runtime")


def seconds_until_its_first_state(bench: Workbench) -> float:
    started, entered = bench.events(bench.run(PASS).arn)[:2]
    assert (started["type"], entered["type"]) == ("ExecutionStarted", "PassStateEntered")
    return float((entered["timestamp"] - started["timestamp"]).total_seconds())


def test_an_execution_starts_at_once(corrected: Workbench) -> None:
    """If the machine has time for it; the delay would be there each time."""
    assert any(seconds_until_its_first_state(corrected) < 0.15 for _ in range(20))


def test_control_an_execution_starts_after_150_ms(left_out: WithoutCorrection) -> None:
    assert seconds_until_its_first_state(left_out("start_delay")) >= 0.15
