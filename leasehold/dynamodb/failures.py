"""What a failed request to DynamoDB means: not written, unknown, or a defect of the set-up."""

from __future__ import annotations

from typing import Any, Final, cast

from botocore.exceptions import ClientError

from leasehold.errors import LockStoreUnavailable

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
"""Refusals to look at the request at all. The write certainly did not happen."""
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
_TRY_AGAIN: Final = frozenset(
    {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
_FIRST_SERVER_ERROR: Final = 500


def cancellation_reasons(error: ClientError) -> list[dict[str, Any]]:
    """Why a transaction was cancelled: one reason a write, in the order of the writes."""
    return cast("list[dict[str, Any]]", error.response.get("CancellationReasons", []))


def was_not_written(error: Exception) -> bool:
    """Whether it is certain that the write did not happen, and trying again may help."""
    if not isinstance(error, ClientError):
        return False
    codes = {reason.get("Code") for reason in cancellation_reasons(error)}
    cancelled_in_passing = bool(codes & _TRY_AGAIN) and CONDITION_FAILED not in codes
    return _code(error) in NOT_WRITTEN or cancelled_in_passing


def was_repeated(error: ClientError) -> bool:
    """Whether botocore had sent the request before, and perhaps only missed the reply."""
    return error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


def raise_if_unknown(error: Exception) -> None:
    """Raises `LockStoreUnavailable` for a failure that a later repeat may cure; else returns."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        known = _code(error) not in OUTCOME_UNKNOWN and status < _FIRST_SERVER_ERROR
        if known and not was_not_written(error):
            return
    message = f"the lock table did not answer: {error}; the outcome is unknown, repeat the call"
    raise LockStoreUnavailable(message) from error


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")
