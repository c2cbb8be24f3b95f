"""Standard workflows and durable executions are told apart, in requests too."""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.errors import InvalidRequest
from fairlock.wire.requests import parse_acquire, parse_heartbeat
from fairlock.wire.rules import callback_id_in, callback_token, is_durable, is_standard
from tests.support.bad_inputs import VALID_EXECUTION

DURABLE = (
    "arn:aws:lambda:us-east-1:123456789012:function:billing:$LATEST/durable-execution/"
    "order-123/9f7d84c9-ea3d-3ffc-b3e5-5ec51c34ffc9"
)
CALLBACK = "Q2FsbGJhY2s="
REQUEST: dict[str, Any] = {"lock_name": "a", "owner_id": "o" * 16}


@pytest.mark.parametrize("version", ["$LATEST", "$LATEST.PUBLISHED", "7", "120"])
def test_an_execution_of_each_version_is_durable(version: str) -> None:
    arn = DURABLE.replace("$LATEST", version)
    assert is_durable(arn)
    assert not is_standard(arn)


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:lambda:us-east-1:123456789012:function:billing",
        "arn:aws:lambda:us-east-1:123456789012:function:billing:7",
        DURABLE.replace(":$LATEST", ""),
        DURABLE.replace(":$LATEST", ":prod"),
        DURABLE.replace("order-123/", ""),
        DURABLE.replace("123456789012", "12345"),
        DURABLE + "/more",
        DURABLE + "\n",
        VALID_EXECUTION,
    ],
)
def test_nothing_else_is_durable(arn: str) -> None:
    assert not is_durable(arn)


def test_a_callback_id_is_told_from_a_task_token() -> None:
    assert callback_id_in(callback_token(CALLBACK)) == CALLBACK
    assert callback_id_in(CALLBACK) is None


def test_a_durable_execution_waits_with_its_callback() -> None:
    request = parse_acquire({**REQUEST, "execution_arn": DURABLE, "task_token": CALLBACK})
    assert (request.task_token, request.waits) == (callback_token(CALLBACK), True)


def test_a_workflow_waits_with_its_task_token() -> None:
    request = parse_acquire({**REQUEST, "execution_arn": VALID_EXECUTION, "task_token": CALLBACK})
    assert request.task_token == CALLBACK


@pytest.mark.parametrize("callback_id", ["not base64!", "=", "a" * 1025, callback_token(CALLBACK)])
def test_what_lambda_takes_for_no_callback_id_is_refused(callback_id: str) -> None:
    with pytest.raises(InvalidRequest, match="task_token: must be the id of a callback"):
        parse_acquire({**REQUEST, "execution_arn": DURABLE, "task_token": callback_id})


def test_a_durable_execution_has_no_heartbeat_state() -> None:
    with pytest.raises(InvalidRequest, match="execution_arn: must be the ARN of a Standard"):
        parse_heartbeat({**REQUEST, "execution_arn": DURABLE, "task_token": CALLBACK})
