"""What Lambda is told and asked about durable executions, and what its answers mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from mypy_boto3_lambda import LambdaClient

from fairlock.aws.executions import Delivery, DurableFunctions, Execution, Liveness, WorkflowEngines
from fairlock.aws.retry import RetryBudget
from fairlock.clock import iso_utc
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Refusal
from fairlock.wire.rules import callback_token
from tests.support import START_MS, FakeClock, owner
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.faulty_table import lost_reply

CALLBACK = "Q2FsbGJhY2s="
EXECUTION = (
    "arn:aws:lambda:us-east-1:123456789012:function:billing:7/durable-execution/"
    "090c4189-b18b-4296-9d0c-cfd01dc3a122/9f7d84c9-ea3d-3ffc-b3e5-5ec51c34ffc9"
)
TELLS = "send_durable_execution_callback_success"
ASKED = {"DurableExecutionArn": EXECUTION, "IncludeExecutionData": False}
GRANT = Grant(
    lock_name="a",
    owner_id=owner("anna"),
    fencing_token=7,
    lease_ms=60_000,
    acquired_at_ms=START_MS,
    expires_at_ms=START_MS + 60_000,
)


@pytest.fixture(scope="module")
def lambda_client() -> Iterator[LambdaClient]:
    client = boto3.client(
        "lambda", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    yield client
    client.close()


@pytest.fixture
def stub(lambda_client: LambdaClient) -> Iterator[Stubber]:
    with Stubber(lambda_client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def engine(client: Any) -> DurableFunctions:  # noqa: ANN401 - a client or a stand-in
    budget = RetryBudget(clock=FakeClock(), random=lambda: 0.5)
    return DurableFunctions(lambda: client, budget, account=lambda: "123456789012")


def answer_of(status: str, **more: object) -> dict[str, object]:
    return {
        "DurableExecutionArn": EXECUTION,
        "DurableExecutionName": "order-123",
        "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:billing:7",
        "StartTimestamp": datetime(2030, 1, 1, tzinfo=UTC),
        "Status": status,
        **more,
    }


def test_a_waiter_is_told_what_acquire_would_have_answered(
    lambda_client: LambdaClient, stub: Stubber
) -> None:
    answer = {
        "acquired": True,
        "lock_name": "a",
        "owner_id": owner("anna"),
        "fencing_token": 7,
        "lease_seconds": 60,
        "acquired_at": iso_utc(START_MS),
    }
    request = {"CallbackId": CALLBACK, "Result": json.dumps(answer).encode()}
    stub.add_response(TELLS, {}, request)
    assert engine(lambda_client).wake_waiter(CALLBACK, GRANT) is Delivery.DELIVERED


@pytest.mark.parametrize(
    ("code", "retries", "delivery"),
    [
        ("CallbackTimeoutException", 0, Delivery.GONE),
        ("ResourceNotFoundException", 0, Delivery.GONE),
        ("InvalidParameterValueException", 0, Delivery.GONE),
        # An earlier sending, whose reply was lost, may have completed the callback.
        ("CallbackTimeoutException", 2, Delivery.UNKNOWN),
        ("AccessDeniedException", 0, Delivery.UNKNOWN),
        ("ServiceException", 0, Delivery.UNKNOWN),
        ("KMSDisabledException", 0, Delivery.UNKNOWN),
    ],
)
def test_a_message_that_lambda_refuses(
    lambda_client: LambdaClient, stub: Stubber, code: str, retries: int, delivery: Delivery
) -> None:
    meta: Any = {"RetryAttempts": retries}
    stub.add_client_error(TELLS, code, response_meta=meta)
    assert engine(lambda_client).wake_waiter(CALLBACK, GRANT) is delivery


def test_a_throttled_message_is_repeated(lambda_client: LambdaClient, stub: Stubber) -> None:
    for _ in range(2):
        stub.add_client_error(TELLS, "TooManyRequestsException", http_status_code=429)
    stub.add_response(TELLS, {})
    assert engine(lambda_client).wake_waiter(CALLBACK, GRANT) is Delivery.DELIVERED


def test_a_message_without_an_answer_is_unknown(
    lambda_client: LambdaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times_out(**_: object) -> None:
        raise lost_reply()

    monkeypatch.setattr(lambda_client, TELLS, times_out)
    assert engine(lambda_client).wake_waiter(CALLBACK, GRANT) is Delivery.UNKNOWN


@pytest.mark.parametrize(
    ("status", "liveness"),
    [
        ("RUNNING", Liveness.RUNNING),
        ("SUCCEEDED", Liveness.OVER),
        ("FAILED", Liveness.OVER),
        ("TIMED_OUT", Liveness.OVER),
        ("STOPPED", Liveness.OVER),
        ("PAUSING", Liveness.RUNNING),
        ("PAUSED", Liveness.RUNNING),
        ("DELETING", Liveness.OVER),
        ("NEW_STATUS", Liveness.UNKNOWN),
    ],
)
def test_each_status_of_an_execution(
    lambda_client: LambdaClient, stub: Stubber, status: str, liveness: Liveness
) -> None:
    """Asked without its data, which Lambda decrypts by the caller's permissions."""
    stub.add_response("get_durable_execution", answer_of(status), ASKED)
    assert engine(lambda_client).describe(EXECUTION) == Execution(liveness)


@pytest.mark.parametrize(
    ("code", "arn", "liveness"),
    [
        ("ResourceNotFoundException", EXECUTION, Liveness.OVER),
        ("ResourceNotFoundException", EXECUTION.replace("us-", "eu-"), Liveness.UNKNOWN),
        ("ResourceNotFoundException", EXECUTION.replace("12345678", "2" * 8), Liveness.UNKNOWN),
        ("TooManyRequestsException", EXECUTION, Liveness.UNKNOWN),
        ("AccessDeniedException", EXECUTION, Liveness.UNKNOWN),
        ("KMSAccessDeniedException", EXECUTION, Liveness.UNKNOWN),
        ("ServiceException", EXECUTION, Liveness.UNKNOWN),
        ("New", EXECUTION, Liveness.UNKNOWN),
    ],
)
def test_an_execution_that_is_forgotten_where_it_ran_is_over_and_any_other_error_is_no_guess(
    lambda_client: LambdaClient, stub: Stubber, code: str, arn: str, liveness: Liveness
) -> None:
    stub.add_client_error("get_durable_execution", code)
    assert engine(lambda_client).describe(arn) == Execution(liveness)


def test_a_sdk_that_cannot_leave_the_data_out_asks_with_them(
    lambda_client: LambdaClient, stub: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = lambda_client.meta.service_model.operation_model("GetDurableExecution").input_shape
    assert shape is not None
    monkeypatch.delitem(shape.members, "IncludeExecutionData")
    stub.add_response(
        "get_durable_execution", answer_of("RUNNING"), {"DurableExecutionArn": EXECUTION}
    )
    assert engine(lambda_client).describe(EXECUTION).liveness is Liveness.RUNNING


def test_the_end_of_an_execution_is_told(lambda_client: LambdaClient, stub: Stubber) -> None:
    ended = datetime.fromtimestamp(START_MS / 1000, UTC)
    stub.add_response("get_durable_execution", answer_of("STOPPED", EndTimestamp=ended))
    expected = Execution(Liveness.OVER, ended_at_ms=START_MS)
    assert engine(lambda_client).describe(EXECUTION) == expected


@pytest.mark.parametrize("client", [None, SimpleNamespace()])
def test_without_a_client_or_with_an_old_one_nothing_is_known(client: object) -> None:
    """AWS SDKs before December 2025 have no calls for durable functions."""
    assert engine(client).wake_waiter(CALLBACK, GRANT) is Delivery.UNKNOWN
    assert engine(client).describe(EXECUTION) == Execution(Liveness.UNKNOWN)


class Noting:
    """An engine that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def wake_waiter(self, token: str, _grant: Grant | Refusal) -> Delivery:
        self.asked.append(token)
        return Delivery.DELIVERED

    def end_heartbeat(self, token: str, _end: object) -> Delivery:
        self.asked.append(token)
        return Delivery.DELIVERED

    def describe(self, arn: str) -> Execution:
        self.asked.append(arn)
        return Execution(Liveness.RUNNING)


def test_the_token_and_the_arn_choose_the_engine() -> None:
    standard, durable = Noting(), Noting()
    engines = WorkflowEngines(standard, durable)  # type: ignore[arg-type]  # they stand in
    for token in ("task-token", callback_token(CALLBACK)):
        engines.wake_waiter(token, GRANT)
    for arn in (VALID_EXECUTION, EXECUTION):
        engines.describe(arn)
    engines.end_heartbeat("heartbeat-token", None)  # type: ignore[arg-type]  # passed on
    assert standard.asked == ["task-token", VALID_EXECUTION, "heartbeat-token"]
    assert durable.asked == [CALLBACK, EXECUTION]
