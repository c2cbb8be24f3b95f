"""How the functions of the service are invoked, and what their errors become."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock.durable import LockFunctions, lock_functions
from fairlock.durable.lock_functions import error_named, text_of
from fairlock.errors import (
    InvalidRequest,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from lambdas.runtime import InvalidRequest as InvalidRequestOfAFunction
from tests.support.faults import client_error

REQUEST = {"lock_name": "a", "owner_id": "o" * 16}


@dataclass
class Functions:
    """Replaces a Lambda client."""

    answer: Any = field(default_factory=dict)
    failed: bool = False
    raises: Exception | None = None
    invoked: list[tuple[str, Any]] = field(default_factory=list)

    def invoke(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        self.invoked.append((request["FunctionName"], json.loads(request["Payload"])))
        if self.raises is not None:
            raise self.raises
        payload = io.BytesIO(json.dumps(self.answer).encode())
        return {"Payload": payload} | ({"FunctionError": "Unhandled"} if self.failed else {})


def over(functions: Functions) -> LockFunctions:
    client: Any = functions
    return LockFunctions("acquire-arn", "release-arn", client)


def failure(kind: str, message: str) -> Functions:
    return Functions({"errorType": kind, "errorMessage": message}, failed=True)


def test_each_call_invokes_its_function() -> None:
    functions = Functions({"acquired": True})
    assert over(functions).acquire(REQUEST) == {"acquired": True}
    over(functions).release(REQUEST)
    assert functions.invoked == [("acquire-arn", REQUEST), ("release-arn", REQUEST)]


@pytest.mark.parametrize(
    "original",
    [
        InvalidRequest(field="limit", rule="must be at most 78 (with these texts)", value=99),
        InvalidRequest(field="reason", rule="must not end with: this (got it)", value="x (got y)"),
        InvalidRequest(field="owner_id", rule="is required", missing=True),
        InvalidRequest(field="data", rule="must be small", value="a\nb\u2028 {}"),
    ],
    ids=["number", "text like a rule", "missing", "line ends"],
)
def test_an_invalid_request_has_its_field_rule_value_and_text(original: InvalidRequest) -> None:
    """Read as data: a text for people cannot be taken apart again, as the second one shows."""
    reported = InvalidRequestOfAFunction(original)
    with pytest.raises(InvalidRequest) as caught:
        over(failure("InvalidRequest", str(reported))).acquire(REQUEST)
    found = caught.value
    assert (found.field, found.rule, found.value) == (original.field, original.rule, original.value)
    assert str(found) == str(original)
    assert error_named("InvalidRequest", text_of(found)).args == original.args


@pytest.mark.parametrize("text", ["", "limit: 7", "limit\n{}", 'limit\n{"field": 1}', "a\n[]"])
def test_an_invalid_request_without_data_is_one_all_the_same(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        over(failure("InvalidRequest", text)).acquire(REQUEST)
    assert (caught.value.field, caught.value.rule, str(caught.value)) == ("request", text, text)


@pytest.mark.parametrize("kind", ["LockStoreMisconfigured", "LockItemMalformed"])
def test_what_no_repeat_cures_is_misconfigured(kind: str) -> None:
    with pytest.raises(LockStoreMisconfigured, match="as it was said"):
        over(failure(kind, "as it was said")).acquire(REQUEST)


@pytest.mark.parametrize(
    "kind", ["LockStoreUnavailable", "Sandbox.Timedout", "Runtime.ExitError", "KeyError", "New"]
)
def test_every_other_error_of_a_function_is_an_unknown_outcome(kind: str) -> None:
    with pytest.raises(LockStoreUnavailable):
        over(failure(kind, "x")).acquire(REQUEST)


@pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException"])
def test_a_function_that_cannot_be_invoked_is_misconfigured(code: str) -> None:
    with pytest.raises(LockStoreMisconfigured, match="acquire-arn") as caught:
        over(Functions(raises=client_error(code))).acquire(REQUEST)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "error",
    [
        client_error("TooManyRequestsException", 429),
        client_error("ServiceException", 500),
        ReadTimeoutError(endpoint_url="https://lambda"),
    ],
)
def test_throttles_and_lost_replies_are_unknown_outcomes(error: ClientError) -> None:
    with pytest.raises(LockStoreUnavailable):
        over(Functions(raises=error)).release(REQUEST)


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLOCK_ACQUIRE_FUNCTION", "a")
    monkeypatch.setenv("FAIRLOCK_RELEASE_FUNCTION", "r")
    assert LockFunctions.from_environment() == LockFunctions("a", "r")


def test_a_missing_service_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLOCK_ACQUIRE_FUNCTION", raising=False)
    with pytest.raises(LockStoreMisconfigured, match="grant_durable"):
        LockFunctions.from_environment()


def test_a_repeat_is_never_hidden_in_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that boto3 repeats may be answered "not held" though it has released."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = lock_functions._default_client.__wrapped__()  # noqa: SLF001 - its private client
    config: Any = client.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout > 20  # the functions' own timeout
    client.close()
