"""The edge to DynamoDB: sends requests of the protocol, and translates what can go wrong.

Three outcomes are kept apart: the write happened; the condition failed, which is an answer and
carries the item; nobody knows, which is `LockStoreUnavailable`. Everything else (no such table, no
permission, a request that DynamoDB finds invalid) is a defect of the set-up and is raised as boto3
raises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError  # noqa: A004 - botocore's name

from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.expressions import Update
from leasehold.protocol.items import Item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OUTCOME_UNKNOWN: Final = frozenset(
    {
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_FIRST_SERVER_ERROR: Final = 500

CLIENT_CONFIG: Final = Config(
    connect_timeout=1,
    read_timeout=1.5,
    retries={"mode": "standard", "total_max_attempts": 3},
)
"""Three quick tries fit into the handlers' ten seconds. DynamoDB answers in milliseconds; a longer
read
timeout would only turn a lost reply into a lost invocation."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write happened. `item` is the item after or before it, as the request asked for."""

    item: Item


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The condition did not hold. `item` is what the item was; empty if there is none."""

    item: Item


class LockTable:
    """One lock table.

    Args:
        client: a DynamoDB client; `CLIENT_CONFIG` suits it.
        name: the table's name or ARN.
    """

    def __init__(self, client: DynamoDBClient, name: str) -> None:
        self._client = client
        self._name = name

    def update(self, update: Update) -> Written | ConditionFailed:
        """Sends one conditional update: one request, unless the connection fails.

        Raises:
            LockStoreUnavailable: a throttle, a timeout or a 5xx outlasted the retries. The write
            may
                have happened.
        """
        try:
            response = self._client.update_item(
                TableName=self._name,
                Key=update.key,
                UpdateExpression=update.change,
                ConditionExpression=update.condition,
                ExpressionAttributeNames=update.names,
                ExpressionAttributeValues=update.values,
                ReturnValues=update.returns,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as error:
            # The stubs know one shape of errors; this one also carries the item.
            return ConditionFailed(cast("Item", error.response.get("Item", {})))
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise_if_unknown(error)
            raise
        return Written(response.get("Attributes", {}))


def raise_if_unknown(error: Exception) -> None:
    """Raises `LockStoreUnavailable` for a failure that leaves the outcome unknown; else returns."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code not in OUTCOME_UNKNOWN and status < _FIRST_SERVER_ERROR:
            return
    message = f"the lock table did not answer: {error}; the outcome is unknown, repeat the call"
    raise LockStoreUnavailable(message) from error
