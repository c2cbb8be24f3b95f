"""DynamoDB clients that fail: before the write, after it, or by doing it twice."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

ENDPOINT: Final = "https://dynamodb.us-east-1.amazonaws.com"
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
    """By name, failures that no repetition cures: raised as boto3 raises them."""
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
class FaultyClient:
    """Fails writes: `before` they reach the table, or `after` they were done.

    Attributes:
        calls: which calls fail, counted from 1; none given, then all.
    """

    inner: Any
    error: Exception
    when: Literal["before", "after"] = "before"
    calls: Collection[int] = ()
    count: int = field(default=0)

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - boto3 makes these classes at run time
        return self.inner.exceptions

    def update_item(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        self.count += 1
        if self.calls and self.count not in self.calls:
            return self.inner.update_item(**arguments)
        if self.when == "after":
            with suppress(ClientError):
                self.inner.update_item(**arguments)
        raise self.error


@dataclass
class RepeatingClient:
    """Sends each write twice and returns the second answer: botocore's retry after a lost reply."""

    inner: Any

    @property
    def exceptions(self) -> Any:  # noqa: ANN401 - boto3 makes these classes at run time
        return self.inner.exceptions

    def update_item(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        with suppress(ClientError):
            self.inner.update_item(**arguments)
        return self.inner.update_item(**arguments)
