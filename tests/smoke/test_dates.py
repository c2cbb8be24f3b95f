"""Case 18: each answer of DynamoDB tells AWS's time, by which all leases go."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.aws.aws_clock import date_in
from fairlock.aws.lock_table import LockTable
from fairlock.protocol.schema import lock_key
from tests.smoke.account import Account

ANSWERS = 1_000
THROTTLE_TRIES = 20_000
NOT_THERE: dict[str, Any] = {"ConditionExpression": "attribute_exists(pk) AND pk = :no"}


def answer_of(call: Any, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 answers
    try:
        answered: dict[str, Any] = call(**request)
    except ClientError as refused:
        return dict(refused.response)
    return answered


def test_each_answer_has_a_date_of_its_own(account: Account, lock: str) -> None:
    """Decides whether refusals have one too: a lease of another is judged by nothing else."""
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    key = dict(lock_key(lock))
    write = {"TableName": table, "Key": key, "ExpressionAttributeValues": {":no": {"S": "no"}}}
    refused = {**write, **NOT_THERE}
    answers = {
        "a success": answer_of(dynamodb.get_item, TableName=table, Key=key),
        "a refused condition": answer_of(dynamodb.delete_item, **refused),
        "a cancelled transaction": answer_of(
            dynamodb.transact_write_items, TransactItems=[{"Delete": refused}]
        ),
    }
    assert answers["a refused condition"]["Error"]["Code"] == "ConditionalCheckFailedException"
    assert answers["a cancelled transaction"]["Error"]["Code"] == "TransactionCanceledException"
    assert [name for name, answer in answers.items() if date_in(answer) is None] == []


def test_the_dates_of_all_front_ends_fit_together(account: Account) -> None:
    """Decides whether front ends stay within half a second either way, which the rules allow."""
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    locks = LockTable(dynamodb, table)
    clock = locks.aws_clock
    edges: list[tuple[float, float]] = []
    for number in range(ANSWERS):
        sent = clock.monotonic()
        answer = dynamodb.get_item(TableName=table, Key=dict(lock_key(f"date-{number}")))
        date_ms = date_in(answer)
        assert date_ms is not None
        # What this one answer says of AWS's time less our monotonic clock: at least and at most.
        edges.append((date_ms / 1000 - clock.monotonic(), date_ms / 1000 + 1 - sent))
    apart = max(least for least, _ in edges) - min(most for _, most in edges)
    account.tell(f"front ends over {ANSWERS} answers: {max(0.0, apart):.3f} s apart at least")
    assert apart < 1


def test_a_throttle_has_a_date_too(account: Account, lock: str) -> None:
    """Decides whether a throttle has one: nothing is judged by it, the request is repeated."""
    account.needs_aws("it does not throttle")
    dynamodb, table = account.client("dynamodb"), account.workflows.table_name
    for _ in range(THROTTLE_TRIES):
        answer = answer_of(
            dynamodb.get_item, TableName=table, Key=dict(lock_key(lock)), ConsistentRead=True
        )
        if "Error" in answer:
            account.tell(f"{answer['Error']['Code']}: Date {date_in(answer)}")
            return
    pytest.skip("DynamoDB did not throttle")
