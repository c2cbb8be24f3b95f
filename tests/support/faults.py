"""DynamoDB clients that fail: before the write, after it, or by doing it twice."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

ENDPOINT: Final = "https://dynamodb.us-east-1.amazonaws.com"
WRITES: Final = ("update_item", "transact_write_items", "put_item", "delete_item")
THROTTLES: Final = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
)
UNKNOWNS: Final = (
    "InternalServerError",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "TransactionInProgressException",
)


def client_error(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "as a test wants it"},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "RequestId": "r",
                "HostId": "h",
                "HTTPHeaders": {},
                "RetryAttempts": 2,
            },
        },
        "UpdateItem",
    )


def refusal(code: str) -> ClientError:
    """An answer to the first and only sending of a request."""
    error = client_error(code)
    error.response["ResponseMetadata"]["RetryAttempts"] = 0
    return error


def unknown_outcomes() -> dict[str, Exception]:
    """By name, all that must become LockStoreUnavailable."""
    return {
        **{code: client_error(code) for code in THROTTLES + UNKNOWNS},
        **{f"{code} with status 500": client_error(code, 500) for code in UNKNOWNS},
        "a 500 that has no code": client_error("500", 500),
        "a 503 of a code never heard of": client_error("BrandNewFailure", 503),
        "read timeout": ReadTimeoutError(endpoint_url=ENDPOINT),
        "connect timeout": ConnectTimeoutError(endpoint_url=ENDPOINT),
        "no connection": EndpointConnectionError(endpoint_url=ENDPOINT),
        "connection closed": ConnectionClosedError(endpoint_url=ENDPOINT),
    }


def defects() -> dict[str, ClientError]:
    """By name, failures that no repetition cures."""
    codes = (
        "AccessDeniedException",
        "ResourceNotFoundException",
        "ValidationException",
        "UnrecognizedClientException",
        "ItemCollectionSizeLimitExceededException",
        "BrandNewFailure",
    )
    return {code: client_error(code) for code in codes}


def lost_reply() -> Exception:
    return ReadTimeoutError(endpoint_url=ENDPOINT)


@dataclass
class WrappedClient:
    """Passes requests on; writes as a subclass says in `_write`."""

    inner: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        if name not in WRITES:
            return getattr(self.inner, name)
        return lambda **arguments: self._write(getattr(self.inner, name), arguments)

    def _write(self, send: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        raise NotImplementedError


@dataclass
class FaultyClient(WrappedClient):
    """Fails writes: `before` they reach the table, or `after` they were done.

    Attributes:
        calls: which writes fail, counted from 1; none given, then all.
        then: happens right after a failed write.
    """

    error: Exception
    when: Literal["before", "after"] = "before"
    calls: Collection[int] = ()
    then: Callable[[], object] = lambda: None
    count: int = 0

    def _write(self, send: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        self.count += 1
        if self.calls and self.count not in self.calls:
            return send(**arguments)
        if self.when == "after":
            with suppress(ClientError):
                send(**arguments)
        self.then()
        raise self.error


@dataclass
class RepeatingClient(WrappedClient):
    """Sends each write twice and returns the second answer: botocore's retry after a lost reply."""

    def _write(self, send: Callable[..., Any], arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        with suppress(ClientError):
            send(**arguments)
        return send(**arguments)
