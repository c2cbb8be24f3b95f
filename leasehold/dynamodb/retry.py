"""Sending one request to DynamoDB until it is looked at, or retry_budget ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004 - the name that botocore gave it
    HTTPClientError,
)

from leasehold.dynamodb.failures import raise_if_unknown, was_not_written, was_repeated
from leasehold.dynamodb.retry_budget import RetryBudget

_Answer = TypeVar("_Answer")


class Sending:
    """One request and its repeats.

    Args:
        retry_budget: how long to go on when DynamoDB is too busy for it.

    Attributes:
        repeated: whether botocore has sent it more than once, at any of our tries. One of those
            may have been written, and only its reply been lost, whatever was answered later.
    """

    def __init__(self, retry_budget: RetryBudget) -> None:
        self._retry_budget = retry_budget
        self.repeated = False

    def patiently(self, send: Callable[[], _Answer]) -> _Answer:
        """Sends until DynamoDB looks at the request, or retry_budget ends.

        Raises:
            LockStoreUnavailable: nobody knows whether it was written.
        """
        began = self._retry_budget.clock.monotonic()
        attempt = 0
        while True:
            try:
                return send()
            except (ClientError, ConnectionError, HTTPClientError) as error:
                self.repeated |= isinstance(error, ClientError) and was_repeated(error)
                if not was_not_written(error) or self._retry_budget.is_over(since=began):
                    raise_if_unknown(error)
                    raise
            self._retry_budget.pause(attempt)
            attempt += 1
