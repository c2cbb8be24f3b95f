"""The edge to DynamoDB: sends requests of the protocol, and translates what can go wrong.

There are four outcomes: the write happened; the condition failed, which is an answer and carries
the item; DynamoDB was too busy and certainly did not write, so the request is repeated; the outcome
is unknown, which is `LockStoreUnavailable`. Everything else (no such table, no permission, a
request that DynamoDB finds invalid) is a defect of the set-up, `LockStoreMisconfigured`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.retry import (
    CONDITION_FAILED,
    RepeatedRequest,
    RetryBudget,
    cancellation_reasons,
    is_false_condition,
    misconfigured,
    raise_if_unknown,
)
from fairlock.clock import NO_DATE, AwsClock
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol.table_requests import (
    Answer,
    Check,
    Delete,
    Item,
    Page,
    Put,
    Query,
    Scan,
    Transaction,
    Update,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


_VERBS: Final[Mapping[type, str]] = {Put: "Put", Delete: "Delete", Check: "ConditionCheck"}


@dataclass(frozen=True, slots=True)
class Written(Answer):
    """The write happened. `item` is the item after or before it, as the request asked for."""

    item: Item = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConditionFailed(Answer):
    """A condition was false, and nothing was written.

    Attributes:
        item: the lock's, if its condition was false; empty if there is none.
        repeated: whether an earlier sending may have written.
        elsewhere: whether only conditions on other items of the transaction are false.
        check_failed: whether its `Check` is.
    """

    item: Item = field(repr=False)
    repeated: bool = False
    elsewhere: bool = False
    check_failed: bool = False


class LockTable:
    """One lock table. Each answer tells when it was given, refusals included.

    All methods raise `LockStoreUnavailable` if a throttle, a timeout or a 5xx outlasts the
    retry_budget, and `LockStoreMisconfigured` if AWS refuses the request.

    Args:
        client: a DynamoDB client; `fairlock.aws.retry.CLIENT_CONFIG` suits it.
        name: the table's name or ARN.
        retry_budget: how long to go on with a request that DynamoDB is too busy for.
        aws_clock: learns from each answer; None for one that knows nothing yet.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        retry_budget: RetryBudget | None = None,
        aws_clock: AwsClock | None = None,
    ) -> None:
        self._client = client
        self._name = name
        self._retry_budget = retry_budget or RetryBudget()
        self.aws_clock = aws_clock or AwsClock(self._retry_budget.clock)

    def update(self, update: Update) -> Written | ConditionFailed:
        """Sends one conditional update."""
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        fields: dict[str, Any] = {
            **self._update_of(update)["Update"],
            "ReturnValues": update.returns,
        }
        answer: Any = request.send(self._client.update_item, **fields)
        when = self._when(answer, request)
        if isinstance(answer, ClientError):
            # The stubs know one shape of errors; this one also carries the item.
            item = cast("Item", answer.response.get("Item", {}))
            return ConditionFailed(item, repeated=request.repeated, **when)
        return Written(answer.get("Attributes", {}), **when)

    def transact(self, transaction: Transaction) -> Written | ConditionFailed:
        """Sends writes that happen together or not at all; all repeats have one request token."""
        others = [transaction.other, *([transaction.check] if transaction.check else [])]
        writes = [self._update_of(transaction.state), *map(self._write_of, others)]
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        answer: Any = request.send(
            self._client.transact_write_items,
            TransactItems=writes,
            ClientRequestToken=str(uuid.uuid4()),
        )
        if not isinstance(answer, ClientError):
            return Written({}, **self._when(answer, request))
        failed = self._failed(answer)
        return ConditionFailed(
            cancellation_reasons(answer)[0].get("Item", {}) if failed[0] else {},
            elsewhere=not failed[0],
            check_failed=any(
                is_false and isinstance(each, Check)
                for is_false, each in zip(failed[1:], others, strict=True)
            ),
            **self._when(answer, request),
        )

    def delete(self, delete: Delete) -> bool:
        """Deletes one item; tells whether it was there, as the condition wants it."""
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        fields = cast("Any", self._write_of(delete))["Delete"]
        answer: Any = request.send(self._client.delete_item, **fields)
        return not isinstance(answer, ClientError)

    def delete_all(self, deletes: Sequence[Delete]) -> tuple[Delete, ...]:
        """Deletes at most 100 items in one transaction; returns those whose condition is false.

        If there are any, nothing was deleted.
        """
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        writes = [self._write_of(delete) for delete in deletes]
        answer: Any = request.send(self._client.transact_write_items, TransactItems=writes)
        if not isinstance(answer, ClientError):
            return ()
        failed = zip(deletes, self._failed(answer), strict=True)
        return tuple(delete for delete, is_false in failed if is_false)

    def read(self, key: Item) -> Item:
        """One item, strongly consistent; empty if there is none."""
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        answer: Any = request.send(
            self._client.get_item, TableName=self._name, Key=key, ConsistentRead=True
        )
        self._when(answer, request)
        return cast("Item", answer.get("Item", {}))

    def query(self, query: Query) -> Page:
        """The items of a range, in order, strongly consistent; one page of 1 MB at most."""
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        answer = request.send(self._client.query, **self._range_of(query))
        after, when = answer.get("LastEvaluatedKey"), self._when(answer, request)
        return Page(items=list(answer["Items"]), next=after, **when)

    def scan(self, scan: Scan) -> Page:
        """Items of the whole table, strongly consistent; one page of 1 MB before the filter."""
        request = RepeatedRequest(self._retry_budget, answer_in=self._answer_in)
        answer = request.send(self._client.scan, **self._range_of(scan))
        after, when = answer.get("LastEvaluatedKey"), self._when(answer, request)
        return Page(items=list(answer["Items"]), next=after, **when)

    def query_all(self, query: Query) -> list[Item]:
        """The items of a range, in order, strongly consistent; as many pages as it takes."""
        items: list[Item] = []
        while True:
            page = self.query(query)
            items += page.items
            if page.next is None:
                return items
            query = replace(query, after=page.next)

    def no_date(self) -> LockStoreMisconfigured:
        """The error for an answer that does not tell when a lease ends, and was needed for that."""
        return LockStoreMisconfigured(
            f"lock table {self._name!r}: {NO_DATE}",
            table_name=self._name,
            region=self._region(),
            code="NoDate",
        )

    def _failed(self, refusal: ClientError) -> list[bool]:
        """Of which writes of a cancelled transaction the condition is false."""
        failed = [each.get("Code") == CONDITION_FAILED for each in cancellation_reasons(refusal)]
        if not any(failed):
            raise self._misconfigured(refusal) from refusal
        return failed

    def _when(self, answer: object, request: RepeatedRequest) -> dict[str, Any]:
        """What an `Answer` that has come just now tells of its time."""
        response = answer.response if isinstance(answer, ClientError) else answer
        meta = getattr(self._client, "meta", None)
        date_ms = self.aws_clock.date_ms(
            cast("Mapping[str, Any]", response),
            sent=request.sent,
            endpoint_url=getattr(meta, "endpoint_url", None),
        )
        return {"sent": request.sent, "date_ms": date_ms}

    def _range_of(self, read: Query | Scan) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "TableName": self._name,
            "FilterExpression": read.only,
            "ExpressionAttributeNames": read.names,
            "ExpressionAttributeValues": read.values,
            "ExclusiveStartKey": read.after,
            "ConsistentRead": True,
        }
        if isinstance(read, Query):
            fields |= {"KeyConditionExpression": read.condition, "Limit": read.most}
            fields["ProjectionExpression"] = read.attributes
        return {name: value for name, value in fields.items() if value is not None}

    def _update_of(self, update: Update) -> TransactWriteItemTypeDef:
        return {
            "Update": {
                "TableName": self._name,
                "Key": update.key,
                "UpdateExpression": update.change,
                "ConditionExpression": update.condition,
                "ExpressionAttributeNames": update.names,
                "ExpressionAttributeValues": update.values,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _write_of(self, write: Put | Delete | Check) -> TransactWriteItemTypeDef:
        fields: dict[str, Any] = {"TableName": self._name}
        fields |= {"Item": write.item} if isinstance(write, Put) else {"Key": write.key}
        if write.condition is not None:
            fields["ConditionExpression"] = write.condition
            fields["ExpressionAttributeNames"] = write.names
        if write.values:
            fields["ExpressionAttributeValues"] = write.values
        return cast("TransactWriteItemTypeDef", {_VERBS[type(write)]: fields})

    def _answer_in(self, error: Exception, request: RepeatedRequest) -> ClientError:
        """The error, if it is an answer: a condition is false. Raises for any other.

        The unknown outcome comes first: a transaction that is cancelled by a throttle has the code
        of one whose condition is false.
        """
        if not isinstance(error, BotoCoreError | ClientError):
            raise error
        raise_if_unknown(error)
        if isinstance(error, ClientError) and is_false_condition(error):
            return error
        if request.repeated:
            message = (
                f"lock table {self._name!r}: AWS refused a repeat of the request ({error}), and "
                "the first sending may have been written; the outcome is unknown, repeat the call"
            )
            raise LockStoreUnavailable(message) from error
        raise self._misconfigured(error) from error

    def _misconfigured(self, error: Exception) -> LockStoreMisconfigured:
        return misconfigured(error, table_name=self._name, region=self._region())

    def _region(self) -> str | None:
        region: str | None = getattr(getattr(self._client, "meta", None), "region_name", None)
        return region
