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
from typing import TYPE_CHECKING, Any, TypedDict, cast

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
    from mypy_boto3_dynamodb.type_defs import (
        ConditionCheckTypeDef,
        DeleteTypeDef,
        PutTypeDef,
        TransactWriteItemTypeDef,
    )


class _When(TypedDict):
    """What each `Answer` tells of its time."""

    sent: float
    date_ms: int | None


@dataclass(frozen=True, slots=True)
class Written(Answer):
    """The write happened. `item` is the item after or before it, as the request asked for."""

    item: Item = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConditionFailed(Answer):
    """It did not hold on this item, empty if there is none. An earlier sending may have written."""

    item: Item = field(repr=False)
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled(Answer):
    """A transaction did not happen: the lock's item if its condition failed, or a check did."""

    state: Item | None = field(repr=False)
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
        request = RepeatedRequest(self._retry_budget)
        fields = self._update_of(update)["Update"]
        try:
            response = request.send(self._client.update_item, **fields, ReturnValues=update.returns)
        except (BotoCoreError, ClientError) as error:
            refusal = self._answer_in(error, request)
            # The stubs know one shape of errors; this one also carries the item.
            item = cast("Item", refusal.response.get("Item", {}))
            when = self._when(refusal.response, request)
            return ConditionFailed(item, repeated=request.repeated, **when)
        return Written(response.get("Attributes", {}), **self._when(response, request))

    def transact(self, transaction: Transaction) -> Written | Cancelled:
        """Sends writes that happen together or not at all; all repeats have one request token."""
        others = [transaction.other, *([transaction.check] if transaction.check else [])]
        writes = [self._update_of(transaction.state), *map(self._write_of, others)]
        token = str(uuid.uuid4())
        request = RepeatedRequest(self._retry_budget)
        try:
            response = request.send(
                self._client.transact_write_items, TransactItems=writes, ClientRequestToken=token
            )
        except (BotoCoreError, ClientError) as error:
            refusal = self._answer_in(error, request)
            reasons = cancellation_reasons(refusal)
            codes = [reason.get("Code") for reason in reasons]
            if CONDITION_FAILED not in codes:
                raise self._misconfigured(refusal) from error
            found = reasons[0].get("Item", {}) if codes[0] == CONDITION_FAILED else None
            check_failed = any(
                code == CONDITION_FAILED and isinstance(each, Check)
                for code, each in zip(codes[1:], others, strict=True)
            )
            when = self._when(refusal.response, request)
            return Cancelled(found, check_failed=check_failed, **when)
        return Written({}, **self._when(response, request))

    def delete(self, delete: Delete) -> bool:
        """Deletes one item; tells whether it was there, as the condition wants it."""
        request = RepeatedRequest(self._retry_budget)
        try:
            request.send(self._client.delete_item, **self._delete_of(delete))
        except (BotoCoreError, ClientError) as error:
            self._answer_in(error, request)
            return False
        return True

    def delete_all(self, deletes: Sequence[Delete]) -> tuple[Delete, ...]:
        """Deletes at most 100 items in one transaction; returns those whose condition is false.

        If there are any, nothing was deleted.
        """
        writes = [self._write_of(delete) for delete in deletes]
        request = RepeatedRequest(self._retry_budget)
        try:
            request.send(self._client.transact_write_items, TransactItems=writes)
        except (BotoCoreError, ClientError) as error:
            reasons = cancellation_reasons(self._answer_in(error, request))
            codes = [reason.get("Code") for reason in reasons]
            if CONDITION_FAILED not in codes:
                raise
            failed = zip(deletes, codes, strict=True)
            return tuple(delete for delete, code in failed if code == CONDITION_FAILED)
        return ()

    def read(self, key: Item) -> Item:
        """One item, strongly consistent; empty if there is none."""
        request = RepeatedRequest(self._retry_budget)
        try:
            response = request.send(
                self._client.get_item, TableName=self._name, Key=key, ConsistentRead=True
            )
        except (BotoCoreError, ClientError) as error:
            raise self._answer_in(error, request) from error
        self._when(response, request)
        return response.get("Item", {})

    def query(self, query: Query) -> Page:
        """The items of a range, in order, strongly consistent; one page of 1 MB at most."""
        request = RepeatedRequest(self._retry_budget)
        try:
            response = request.send(self._client.query, **self._range_of(query))
        except (BotoCoreError, ClientError) as error:
            raise self._answer_in(error, request) from error
        items, after = response["Items"], response.get("LastEvaluatedKey")
        return Page(items=list(items), next=after, **self._when(response, request))

    def scan(self, scan: Scan) -> Page:
        """Items of the whole table, strongly consistent; one page of 1 MB before the filter."""
        request = RepeatedRequest(self._retry_budget)
        try:
            response = request.send(self._client.scan, **self._range_of(scan))
        except (BotoCoreError, ClientError) as error:
            raise self._answer_in(error, request) from error
        items, after = response["Items"], response.get("LastEvaluatedKey")
        return Page(items=list(items), next=after, **self._when(response, request))

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

    def _when(self, response: object, request: RepeatedRequest) -> _When:
        """When an answer was given, one that has come just now."""
        meta = getattr(self._client, "meta", None)
        date_ms = self.aws_clock.date_ms(
            cast("Mapping[str, Any]", response),
            sent=request.sent,
            endpoint_url=getattr(meta, "endpoint_url", None),
        )
        return _When(sent=request.sent, date_ms=date_ms)

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
        if isinstance(write, Put):
            put: PutTypeDef = {"TableName": self._name, "Item": write.item}
            if write.condition is not None:
                put["ConditionExpression"] = write.condition
                put["ExpressionAttributeNames"] = write.names
                if write.values:
                    put["ExpressionAttributeValues"] = write.values
            return {"Put": put}
        if isinstance(write, Check):
            return {"ConditionCheck": cast("ConditionCheckTypeDef", self._delete_of(write))}
        return {"Delete": self._delete_of(write)}

    def _delete_of(self, delete: Delete | Check) -> DeleteTypeDef:
        """A delete, and a check of the same shape."""
        fields: DeleteTypeDef = {
            "TableName": self._name,
            "Key": delete.key,
            "ConditionExpression": delete.condition,
            "ExpressionAttributeNames": delete.names,
        }
        if delete.values:
            fields["ExpressionAttributeValues"] = delete.values
        return fields

    def _answer_in(self, error: Exception, request: RepeatedRequest) -> ClientError:
        """The error, if it is an answer: a condition is false. Raises for any other.

        The unknown outcome comes first: a transaction that is cancelled by a throttle has the code
        of one whose condition is false.
        """
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
