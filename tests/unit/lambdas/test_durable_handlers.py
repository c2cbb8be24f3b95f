"""The entry points and durable executions: answers, pushes through callbacks, and the reaper."""

from __future__ import annotations

import json
from typing import Any

import botocore
import pytest

from fairlock.aws.executions import Delivery, DurableFunctions
from fairlock.errors import InvalidRequest, LockStoreMisconfigured
from fairlock.protocol.model import ExecutionEnded
from fairlock.protocol.outcomes import Grant, Refusal
from lambdas import acquire, release, runtime
from lambdas.reap_messages import ReapMessage, parse_reap_message
from tests.support.lambda_context import LambdaContextStub
from tests.support.workflows import FakeWorkflows

CONTEXT = LambdaContextStub()
ANNA = {"lock_name": "customer/1", "owner_id": "anna-0123456789ab"}
BEN = {**ANNA, "owner_id": "ben_-0123456789ab"}
EXECUTION = "arn:aws:lambda:us-east-1:123456789012:function:billing:7/durable-execution/run/id"
CALLBACK = "Q2FsbGJhY2s="
BEN_WAITS = {**BEN, "task_token": CALLBACK, "execution_arn": EXECUTION, "fallback_seconds": 300}

pytestmark = pytest.mark.usefixtures("lambda_environment")


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Grant | Refusal]]:
    """What is sent through callbacks."""
    sent: list[tuple[str, Grant | Refusal]] = []

    def wake_waiter(_self: DurableFunctions, callback_id: str, grant: Grant | Refusal) -> Delivery:
        sent.append((callback_id, grant))
        return Delivery.DELIVERED

    monkeypatch.setattr(DurableFunctions, "wake_waiter", wake_waiter)
    return sent


def test_a_grant_is_the_answer_and_not_sent_through_the_callback(
    engine: FakeWorkflows, pushes: list[Any]
) -> None:
    assert acquire.handler(dict(BEN_WAITS), CONTEXT)["acquired"] is True
    assert (engine.woken, pushes) == ([], [])


def test_a_release_hands_over_through_the_callback(
    engine: FakeWorkflows, pushes: list[Any]
) -> None:
    acquire.handler(dict(ANNA), CONTEXT)
    answer = acquire.handler(dict(BEN_WAITS), CONTEXT)
    assert (answer["acquired"], answer["reason"]) == (False, "QUEUED")
    release.handler(dict(ANNA), CONTEXT)
    [(callback_id, grant)] = pushes
    assert (callback_id, grant.owner_id) == (CALLBACK, BEN["owner_id"])
    assert engine.woken == []


@pytest.mark.parametrize("handler", [acquire.handler, release.handler])
def test_a_durable_execution_of_another_account_is_refused(handler: Any) -> None:  # noqa: ANN401 - a handler
    elsewhere = EXECUTION.replace("123456789012", "210987654321")
    with pytest.raises(InvalidRequest, match="must be an execution of this service's account"):
        handler({**BEN, "execution_arn": elsewhere}, CONTEXT)


@pytest.mark.parametrize("version", ["1.41.6", "1.9.0", "0.99.0"])
def test_an_aws_sdk_without_durable_functions_takes_no_lock_for_them(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(botocore, "__version__", version)
    with pytest.raises(LockStoreMisconfigured, match=f"botocore {version}, .* needs 1.42.1"):
        acquire.handler(dict(BEN_WAITS), CONTEXT)
    assert acquire.handler(dict(ANNA), CONTEXT)["acquired"] is True, "nothing was written"


@pytest.mark.parametrize("version", ["1.42.1", "1.100.0", "2.0.0", "1.43.0.dev1"])
def test_control_a_newer_aws_sdk_takes_the_lock(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(botocore, "__version__", version)
    assert acquire.handler(dict(BEN_WAITS), CONTEXT)["acquired"] is True
    assert acquire.handler(dict(ANNA), CONTEXT)["acquired"] is False


def test_the_end_of_a_durable_execution_is_a_message_to_the_reaper() -> None:
    body = json.dumps({"detail": {"executionArn": EXECUTION}})
    assert parse_reap_message(body) == ReapMessage(ExecutionEnded(execution_arn=EXECUTION))


@pytest.mark.parametrize("meets_durable", [False, True])
def test_a_client_for_lambda_is_made_only_where_durable_functions_are_met(
    monkeypatch: pytest.MonkeyPatch,
    meets_durable: bool,  # noqa: FBT001 - a parameter
) -> None:
    made: list[str] = []
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "acquire")
    if meets_durable:
        monkeypatch.setenv("FAIRLOCK_DURABLE", "1")
    monkeypatch.setattr(runtime, "_client", made.append)
    runtime.make_clients("dynamodb", "stepfunctions")
    assert made == ["dynamodb", "stepfunctions", *(["lambda"] if meets_durable else [])]
