"""The deployed functions, invoked directly with whatever JSON: a typed refusal, nothing written."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.e2e.deployment import Deployment

OWNER: Final = "an-owner-of-16-or-more"
CHINA: Final = "arn:aws-cn:states:cn-north-1:123456789012:execution:machine"
ODD: Final[dict[str, str]] = {
    "nothing": "null",
    "a list": "[]",
    "a text": '"lock"',
    "a number": "1e400",
    "an empty object": "{}",
    "not a number": '{"lock_name": NaN, "owner_id": Infinity}',
    "a key twice": '{"lock_name": "a", "lock_name": 7}',
    # The emulator parses the event itself, and not much more than this.
    "300 levels": '{"lock_name": "a", "data": ' + "[" * 300 + "]" * 300 + "}",
    "a huge integer": '{"lock_name": "a", "fencing_token": 1' + "0" * 4000 + "}",
    "half a character": '{"lock_name": "\\ud800", "owner_id": "' + OWNER + '"}',
    "a megabyte": json.dumps({"lock_name": "x" * 1_000_000, "owner_id": OWNER}),
    "an unknown field": json.dumps({"lock_name": "a", "owner_id": OWNER, "__class__": {}}),
    "records of nothing": '{"Records": null}',
    "a record of nothing": '{"Records": [{}]}',
    "a machine for an execution": json.dumps(
        {"lock_name": "a", "owner_id": OWNER, "execution_arn": CHINA}
    ),
}
OPERATIONS: Final = ("Acquire", "Heartbeat", "Release", "Inspect", "ForceRelease", "SetLimit")
BATCHES: Final = ("reap", "publish")
LISTED: Final = {("Inspect", "an empty object")}
"""To inspect nothing in particular lists all locks."""


def items(deployment: Deployment) -> int:
    found = deployment.aws.client("dynamodb").scan(TableName=deployment.table_name)
    return len(found["Items"])


def answer(deployment: Deployment, function: str, payload: str) -> tuple[bool, Any]:
    """Whether the function failed, and what it says."""
    told = deployment.aws.client("lambda").invoke(
        FunctionName=function, Payload=payload.encode("utf-8", "surrogatepass")
    )
    return "FunctionError" in told, json.load(told["Payload"])


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_request_is_refused_by_its_field_and_rule_and_nothing_is_written(
    enforcing: Deployment, odd: str
) -> None:
    before = items(enforcing)
    for operation in OPERATIONS:
        if (operation, odd) in LISTED:
            continue
        failed, told = answer(enforcing, enforcing.function_name(operation), ODD[odd])
        assert failed, (operation, told)
        assert told["errorType"] in {"InvalidRequest", "Runtime.UnmarshalError"}, operation
        assert len(told["errorMessage"]) < 2_000, operation
    assert items(enforcing) == before


@pytest.mark.parametrize("handler", BATCHES)
@pytest.mark.parametrize("odd", ODD)
def test_a_function_of_batches_does_nothing_with_what_is_no_batch(
    enforcing: Deployment, handler: str, odd: str
) -> None:
    before = items(enforcing)
    [name] = [
        function["FunctionName"]
        for function in enforcing.aws.client("lambda").list_functions()["Functions"]
        if function["Handler"] == f"lambdas.{handler}.handler"
    ]
    failed, told = answer(enforcing, name, ODD[odd])
    assert failed or told["batchItemFailures"] == [], told
    assert items(enforcing) == before
