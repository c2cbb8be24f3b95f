"""What a failed request to DynamoDB means: not written, unknown, or a defect of the set-up."""

from __future__ import annotations

import os
from typing import Any, Final, cast

from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004 - the name that botocore gave it
    HTTPClientError,
    NoRegionError,
)

from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable

NOT_WRITTEN: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
    }
)
"""DynamoDB refused to process the request at all. The write certainly did not happen."""
OUTCOME_UNKNOWN: Final = frozenset(
    {
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "TransactionInProgressException",
    }
)
CONDITION_FAILED: Final = "ConditionalCheckFailed"
_FALSE_CONDITIONS: Final = frozenset(
    {"ConditionalCheckFailedException", "TransactionCanceledException"}
)
_TRY_AGAIN: Final = frozenset(
    {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
_FIRST_SERVER_ERROR: Final = 500
_NO_PERMISSION: Final = (
    "the caller has no permission; grant what docs/client.md lists under Permissions, with "
    "LockService.grant_client for instance"
)
_CREDENTIALS: Final = "check the AWS credentials, whether they are over, and the machine's clock"
_ADVICE: Final = {
    "ResourceNotFoundException": "there is no such table; check its name, account and region",
    "AccessDeniedException": _NO_PERMISSION,
    "KMSAccessDeniedException": _NO_PERMISSION,
    "ValidationException": (
        "is it a lock table, with the string keys pk and sk? The client of a boto3 resource "
        "converts values, so give boto3.client('dynamodb')"
    ),
    "UnrecognizedClientException": _CREDENTIALS,
    "ExpiredTokenException": _CREDENTIALS,
    "InvalidSignatureException": _CREDENTIALS,
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "ProfileNotFound": "the AWS configuration has no such profile; check --profile or AWS_PROFILE",
    "NoRegionError": (
        "set AWS_DEFAULT_REGION, or give --region on the command line, in Python a session or a "
        "client with a region"
    ),
}


def error_code(error: Exception) -> str:
    """The code by which DynamoDB names the error; empty if it is none of DynamoDB's."""
    if not isinstance(error, ClientError):
        return ""
    return error.response.get("Error", {}).get("Code", "")


def is_false_condition(error: Exception) -> bool:
    """Whether the error is an answer: a condition of the write, or of the transaction, is false.

    By its code, not by its class: while several threads make the first requests of a client, boto3
    may make `client.exceptions` twice, and raise a class that is not the one to be caught.
    """
    return error_code(error) in _FALSE_CONDITIONS


def cancellation_reasons(error: ClientError) -> list[dict[str, Any]]:
    """Why a transaction was cancelled: one reason a write, in the order of the writes."""
    return cast("list[dict[str, Any]]", error.response.get("CancellationReasons", []))


def was_not_written(error: Exception) -> bool:
    """Whether it is certain that the write did not happen, and a repeat may help."""
    if not isinstance(error, ClientError):
        return False
    codes = {reason.get("Code") for reason in cancellation_reasons(error)}
    cancelled_in_passing = bool(codes & _TRY_AGAIN) and CONDITION_FAILED not in codes
    return error_code(error) in NOT_WRITTEN or cancelled_in_passing


def was_repeated(error: Exception) -> bool:
    """Whether botocore had sent the request before, and perhaps only missed the reply."""
    if not isinstance(error, ClientError):
        return False
    return error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


def may_pass(error: Exception) -> bool:
    """Whether a later repeat may help: DynamoDB was too busy, or did not answer."""
    if not isinstance(error, ClientError):
        return isinstance(error, ConnectionError | HTTPClientError)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    is_unknown = error_code(error) in OUTCOME_UNKNOWN or status >= _FIRST_SERVER_ERROR
    return is_unknown or was_not_written(error)


def raise_if_unknown(error: Exception) -> None:
    """Raises `LockStoreUnavailable` for a failure that a later repeat may cure; else returns."""
    if may_pass(error):
        message = f"the lock table did not answer: {error}; the outcome is unknown, repeat the call"
        raise LockStoreUnavailable(message) from error


def misconfigured(
    error: Exception, *, table_name: str, region: str | None
) -> LockStoreMisconfigured:
    """The error for a failure that no repeat cures: names the table, and says what to do."""
    place = f"lock table {table_name!r} in {region or 'no known region'}"
    return misconfigured_call(error, place=place, region=region, table_name=table_name)


def misconfigured_call(
    error: Exception,
    *,
    place: str,
    region: str | None,
    table_name: str = "",
    advice: str | None = None,
) -> LockStoreMisconfigured:
    """The same for a request about something else than a table.

    Args:
        error: what boto3 raised.
        place: what the request was about, and where that is.
        region: of the request; None if no region is known.
        table_name: the lock table, if it is known.
        advice: what to do; None for what helps with every service of AWS.
    """
    code = error_code(error) or type(error).__name__
    advice = advice or _ADVICE.get(code, "no repeat helps")
    if isinstance(error, NoRegionError) and os.environ.get("AWS_REGION"):
        advice += "; boto3 does not read AWS_REGION, which is set"
    message = f"{place}: {advice} ({error})"
    return LockStoreMisconfigured(message, table_name=table_name, region=region, code=code)
