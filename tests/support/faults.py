"""What boto3 raises: answers of DynamoDB that are none, and failures on the way to it."""

from __future__ import annotations

from typing import Final

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
