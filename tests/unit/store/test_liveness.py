"""What Step Functions says about a holder's workflow, and what follows from its silence."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from leasehold.protocol.model import Liveness
from leasehold.workflows.executions import (
    Execution,
    describe_execution,
    execution_liveness,
    nobody_knows,
)
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.faults import lost_reply


@pytest.fixture(scope="module")
def executions() -> Iterator[SFNClient]:
    client = boto3.client(
        "stepfunctions",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


def answer_of(status: str) -> dict[str, object]:
    return {
        "executionArn": VALID_EXECUTION,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
        "status": status,
        "startDate": "2030-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("status", "liveness"),
    [
        ("RUNNING", Liveness.RUNNING),
        ("PENDING_REDRIVE", Liveness.RUNNING),
        ("SUCCEEDED", Liveness.OVER),
        ("FAILED", Liveness.OVER),
        ("TIMED_OUT", Liveness.OVER),
        ("ABORTED", Liveness.OVER),
    ],
)
def test_each_status_of_an_execution(
    executions: SFNClient, status: str, liveness: Liveness
) -> None:
    with Stubber(executions) as stub:
        stub.add_response("describe_execution", answer_of(status))
        assert execution_liveness(executions)(VALID_EXECUTION) is liveness
        stub.assert_no_pending_responses()


def test_an_execution_that_step_functions_has_forgotten_is_over(executions: SFNClient) -> None:
    with Stubber(executions) as stub:
        stub.add_client_error("describe_execution", "ExecutionDoesNotExist")
        assert execution_liveness(executions)(VALID_EXECUTION) is Liveness.OVER


@pytest.mark.parametrize(
    "code",
    ["ThrottlingException", "AccessDeniedException", "InvalidArn", "ServiceUnavailable", "New"],
)
def test_any_other_error_is_unknown_and_never_a_guess(executions: SFNClient, code: str) -> None:
    with Stubber(executions) as stub:
        stub.add_client_error("describe_execution", code)
        assert execution_liveness(executions)(VALID_EXECUTION) is Liveness.UNKNOWN


def test_a_timeout_is_unknown(executions: SFNClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    monkeypatch.setattr(executions, "describe_execution", times_out)
    assert execution_liveness(executions)(VALID_EXECUTION) is Liveness.UNKNOWN


def test_a_status_that_is_not_known_yet_is_unknown(executions: SFNClient) -> None:
    with Stubber(executions) as stub:
        stub.add_response("describe_execution", answer_of("HIBERNATING"))
        assert execution_liveness(executions)(VALID_EXECUTION) is Liveness.UNKNOWN


def test_nobody_knows_of_a_caller_who_may_not_ask() -> None:
    assert nobody_knows(VALID_EXECUTION) is Liveness.UNKNOWN


@pytest.mark.parametrize(
    ("status", "redrives", "expected"),
    [
        ("RUNNING", {}, Execution(Liveness.RUNNING, 0)),
        ("RUNNING", {"redriveCount": 2}, Execution(Liveness.RUNNING, 2)),
        ("ABORTED", {"redriveCount": 1}, Execution(Liveness.OVER, 1)),
    ],
)
def test_how_often_an_execution_was_redriven_is_told_without_its_input(
    executions: SFNClient, status: str, redrives: dict[str, int], expected: Execution
) -> None:
    asked = {"executionArn": VALID_EXECUTION, "includedData": "METADATA_ONLY"}
    with Stubber(executions) as stub:
        stub.add_response("describe_execution", {**answer_of(status), **redrives}, asked)
        assert describe_execution(executions)(VALID_EXECUTION) == expected
        stub.assert_no_pending_responses()


def test_a_forgotten_execution_was_never_redriven(executions: SFNClient) -> None:
    with Stubber(executions) as stub:
        stub.add_client_error("describe_execution", "ExecutionDoesNotExist")
        assert describe_execution(executions)(VALID_EXECUTION) == Execution(Liveness.OVER, 0)
