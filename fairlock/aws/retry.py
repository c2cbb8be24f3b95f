"""How a request is repeated, and what its failure means.

A failure says one of three things: the request was certainly not written, its outcome is unknown,
or the set-up is wrong. One loop repeats a request while a repeat may help, within a budget, with
full jitter (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, ParamSpec, TypeVar, cast

from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004 - the name that botocore gave it
    HTTPClientError,
    NoRegionError,
)

from fairlock.backoff import Random, doubled
from fairlock.clock import Clock, SystemClock
from fairlock.errors import InvalidRequest, LockStoreMisconfigured, LockStoreUnavailable
from fairlock.wire import rules

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
_TRY_AGAIN: Final = frozenset(
    {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
_NO_PERMISSION: Final = (
    "the caller has no permission; grant what docs/client.md lists under Permissions, with "
    "LockService.grant_client for instance"
)
_CREDENTIALS: Final = "check the AWS credentials, whether they are over, and the machine's clock"
_ADVICE: Final = {
    "ResourceNotFoundException": (
        "there is no such table; check its name, account and region; the client for the table of a "
        "stack is made by from_stack"
    ),
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
    "InvalidRegionError": (
        "give the name of a region, such as eu-central-1; check --region, AWS_DEFAULT_REGION, or "
        "the session"
    ),
    "ValueError": (
        "the address of the service must be a URL, such as http://127.0.0.1:8000; check "
        "--endpoint-url or AWS_ENDPOINT_URL"
    ),
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

    By its code: boto3 may make `client.exceptions` twice in threads, and raise a class of the
    other.
    """
    return error_code(error) in {"ConditionalCheckFailedException", "TransactionCanceledException"}


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
    is_unknown = error_code(error) in OUTCOME_UNKNOWN or status >= HTTPStatus.INTERNAL_SERVER_ERROR
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
    """The same for a request about something else than a table, with advice of its own or none."""
    code = error_code(error) or type(error).__name__
    advice = advice or _ADVICE.get(code, "no repeat helps")
    if isinstance(error, NoRegionError) and os.environ.get("AWS_REGION"):
        advice += "; boto3 does not read AWS_REGION, which is set"
    message = f"{place}: {advice} ({error})"
    return LockStoreMisconfigured(message, table_name=table_name, region=region, code=code)


_Answer = TypeVar("_Answer")
_Fields = ParamSpec("_Fields")
DYNAMODB_CLIENT: Final = rules.Rule(
    'must be a client, as boto3.client("dynamodb") makes it, and no resource',
    lambda value: hasattr(value, "transact_write_items"),
)
_OF_A_CLOCK: Final = ("wall_ms", "monotonic", "wait", "alarm")
CLOCK: Final = rules.Rule(
    'must be "system" for a client, or left out; a test passes a clock such as ManualClock()',
    lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in _OF_A_CLOCK),
)
_RANDOM: Final = rules.Rule("must be a function that returns a number from 0 to 1", callable)
_NOT_NEGATIVE: Final = rules.Rule(
    "must be a number of seconds of at least 0", lambda value: rules.is_number(value, 0, math.inf)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBudget:
    """How long to repeat one request, and the pauses in between.

    Attributes:
        deadline: reading of the monotonic clock at which everything must be done, for instance the
            end of a Lambda invocation.
        first_pause_seconds: the longest pause before the first repeat; doubles with each repeat.
        longest_pause_seconds: the longest pause before any repeat.
    """

    seconds: float = 5.0
    deadline: float = math.inf
    clock: Clock = field(default_factory=SystemClock)
    random: Random = random.random
    first_pause_seconds: float = 0.02
    longest_pause_seconds: float = 0.5

    def is_spent(self, *, since: float) -> bool:
        """Whether to give up on what began at `since`, a reading of the monotonic clock."""
        return self.clock.monotonic() >= min(since + self.seconds, self.deadline)

    def deadline_passed(self) -> bool:
        """Whether the deadline is over."""
        return self.clock.monotonic() >= self.deadline

    def pause(self, attempt: int) -> None:
        """Waits before the try after this one (counted from 0)."""
        longest = doubled(self.first_pause_seconds, attempt, longest=self.longest_pause_seconds)
        self.clock.wait(self.random() * longest)


def require_budget(budget: object) -> None:
    """Raises `InvalidRequest` unless a caller's budget can be spent: with NaN, it never is."""
    if not isinstance(budget, RetryBudget):
        rule = "must be a RetryBudget(…) of fairlock.optimistic, or None"
        raise InvalidRequest(field="retry_budget", rule=rule, value=budget)
    for name in ("seconds", "deadline", "first_pause_seconds", "longest_pause_seconds"):
        rules.require(name, _NOT_NEGATIVE, getattr(budget, name))
    rules.require("clock", CLOCK, budget.clock)
    rules.require("random", _RANDOM, budget.random)


class RepeatedRequest:
    """One request, repeated while `repeat_after` says of its last error that this may help.

    Attributes:
        sent: reading of the monotonic clock before it was sent first.
        repeated: whether botocore has sent it more than once, at any of our tries. One of those may
            have been written, whatever was answered later.
    """

    def __init__(
        self,
        retry_budget: RetryBudget,
        *,
        repeat_after: Callable[[Exception], bool] = was_not_written,
        answer_in: Callable[[Exception, RepeatedRequest], object] | None = None,
    ) -> None:
        self._retry_budget = retry_budget
        self._repeat_after = repeat_after
        self._answer_in = answer_in
        self.sent = retry_budget.clock.monotonic()
        self.repeated = False

    def send(
        self, call: Callable[_Fields, _Answer], *args: _Fields.args, **fields: _Fields.kwargs
    ) -> _Answer:
        """Makes the call until it returns; raises its last error when no repeat helps.

        Or returns the `answer_in` that error, if it has one.
        """
        for attempt in itertools.count():
            try:
                return call(*args, **fields)
            except Exception as error:
                self.repeated |= was_repeated(error)
                if not self._repeat_after(error) or self._retry_budget.is_spent(since=self.sent):
                    if self._answer_in is None:
                        raise
                    return cast("_Answer", self._answer_in(error, self))
            self._retry_budget.pause(attempt)
        raise AssertionError  # pragma: no cover - count() has no end


USER_AGENT: Final = f"fairlock Python/{platform.python_version()}"
"""Who sends a request, for CloudTrail; boto3 appends botocore's version. Without a text of ours
botocore puts one together from its parts for each request: an eighth of a lock's CPU time."""

CLIENT_CONFIG: Final = Config(
    connect_timeout=1,
    read_timeout=1.5,
    retries={"mode": "standard", "total_max_attempts": 3},
    user_agent=USER_AGENT,
)
"""Three quick tries fit well into the handlers' time. DynamoDB answers in milliseconds; a longer
read timeout would only turn a lost reply into a lost invocation."""

OWN_REQUESTS_CONFIG: Final = CLIENT_CONFIG.merge(Config(parameter_validation=False))
"""For a client that only we use: our own requests are well-formed, and boto3 takes a twelfth
of their time to check that."""
QUICKLY: Final = Config(
    connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1}
)
