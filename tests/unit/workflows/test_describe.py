"""What Step Functions says about a holder's workflow, and what follows from its silence."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from fairlock.aws.executions import Execution, NoWorkflows, StepFunctions
from fairlock.protocol.model import Liveness
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.faults import lost_reply


def answer_of(status: str) -> dict[str, object]:
    return {
        "executionArn": VALID_EXECUTION,
        "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:billing",
        "status": status,
        "startDate": "2030-01-01T00:00:00Z",
    }


ACCOUNT = "123456789012"


def liveness_of(
    workflows: SFNClient, arn: str = VALID_EXECUTION, account: str | None = ACCOUNT
) -> Liveness:
    return StepFunctions(lambda: workflows, account=lambda: account).describe(arn).liveness


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
def test_each_status_of_an_execution(workflows: SFNClient, status: str, liveness: Liveness) -> None:
    with Stubber(workflows) as stub:
        stub.add_response("describe_execution", answer_of(status))
        assert liveness_of(workflows) is liveness
        stub.assert_no_pending_responses()


def test_an_execution_that_step_functions_has_forgotten_is_over(workflows: SFNClient) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("describe_execution", "ExecutionDoesNotExist")
        assert liveness_of(workflows) is Liveness.OVER


@pytest.mark.parametrize(
    ("arn", "account"),
    [
        (VALID_EXECUTION.replace("us-east-1", "eu-central-1"), ACCOUNT),
        (VALID_EXECUTION.replace(ACCOUNT, "210987654321"), ACCOUNT),
        (VALID_EXECUTION, None),
    ],
    ids=["another region", "another account", "an account that nobody knows"],
)
def test_an_execution_that_was_asked_for_elsewhere_is_not_over(
    workflows: SFNClient, arn: str, account: str | None
) -> None:
    """It runs where it is, and its lock must not be taken from it."""
    with Stubber(workflows) as stub:
        stub.add_client_error("describe_execution", "ExecutionDoesNotExist")
        assert liveness_of(workflows, arn, account) is Liveness.UNKNOWN


@pytest.mark.parametrize(
    "code",
    ["ThrottlingException", "AccessDeniedException", "InvalidArn", "ServiceUnavailable", "New"],
)
def test_any_other_error_is_unknown_and_never_a_guess(workflows: SFNClient, code: str) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("describe_execution", code)
        assert liveness_of(workflows) is Liveness.UNKNOWN


def test_a_timeout_is_unknown(workflows: SFNClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    monkeypatch.setattr(workflows, "describe_execution", times_out)
    assert liveness_of(workflows) is Liveness.UNKNOWN


def test_a_status_that_is_not_known_yet_is_unknown(workflows: SFNClient) -> None:
    with Stubber(workflows) as stub:
        stub.add_response("describe_execution", answer_of("HIBERNATING"))
        assert liveness_of(workflows) is Liveness.UNKNOWN


def test_nobody_knows_of_a_caller_who_may_not_ask() -> None:
    assert NoWorkflows().describe(VALID_EXECUTION) == Execution(Liveness.UNKNOWN)


@pytest.mark.parametrize(
    ("status", "redrives", "expected"),
    [
        ("RUNNING", {}, Execution(Liveness.RUNNING, 0)),
        ("RUNNING", {"redriveCount": 2}, Execution(Liveness.RUNNING, 2)),
        ("ABORTED", {"redriveCount": 1}, Execution(Liveness.OVER, 1)),
    ],
)
def test_how_often_an_execution_was_redriven_is_told_without_its_input(
    workflows: SFNClient, status: str, redrives: dict[str, int], expected: Execution
) -> None:
    asked = {"executionArn": VALID_EXECUTION, "includedData": "METADATA_ONLY"}
    with Stubber(workflows) as stub:
        stub.add_response("describe_execution", {**answer_of(status), **redrives}, asked)
        assert StepFunctions(lambda: workflows).describe(VALID_EXECUTION) == expected
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("status", "ended_at_ms"), [("ABORTED", 1_893_456_000_500), ("RUNNING", None)]
)
def test_it_is_told_when_an_execution_ended_if_it_has(
    workflows: SFNClient, status: str, ended_at_ms: int | None
) -> None:
    """Also a redriven execution may have the date at which it was stopped before."""
    with Stubber(workflows) as stub:
        stopped = {"stopDate": datetime(2030, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)}
        stub.add_response("describe_execution", {**answer_of(status), **stopped})
        execution = StepFunctions(lambda: workflows).describe(VALID_EXECUTION)
    assert execution.ended_at_ms == ended_at_ms


def test_a_forgotten_execution_was_never_redriven(workflows: SFNClient) -> None:
    with Stubber(workflows) as stub:
        stub.add_client_error("describe_execution", "ExecutionDoesNotExist")
        engine = StepFunctions(lambda: workflows, account=lambda: ACCOUNT)
        assert engine.describe(VALID_EXECUTION) == Execution(Liveness.OVER, 0)
