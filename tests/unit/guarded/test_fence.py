"""The fence for single writes: an item that has seen a newer token refuses older ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from fairlock.errors import InvalidRequest
from fairlock.guarded import fence_condition
from testbed.localaws import LocalAws
from tests.unit.guarded.bench import LEDGER, Bench

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.service_resource import Table

KEY: dict[str, Any] = {"account": {"S": "x"}}


def accepts(bench: Bench, token: int, *, fenced: bool = True) -> bool:
    """Whether an update under a token is accepted."""
    fence = fence_condition(token)
    change = f"SET balance = :token, {fence.assignment}"
    request: dict[str, Any] = {"ConditionExpression": fence.condition} if fenced else {}
    try:
        bench.inner.update_item(
            TableName=LEDGER,
            Key=KEY,
            UpdateExpression=change,
            ExpressionAttributeNames=fence.names,
            ExpressionAttributeValues={":token": {"N": str(token)}, **fence.values},
            **request,
        )
    except bench.inner.exceptions.ConditionalCheckFailedException:
        return False
    return True


def test_the_first_write_and_equal_and_newer_tokens_are_accepted_and_older_ones_refused(
    bench: Bench,
) -> None:
    tokens = [5, 5, 7, 5, 6, 7, 8]
    assert [accepts(bench, token) for token in tokens] == [
        True,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert bench.balance("x") == 8


def test_an_item_that_was_there_before_it_was_fenced_is_accepted_once(bench: Bench) -> None:
    bench.inner.put_item(TableName=LEDGER, Item={**KEY, "balance": {"N": "1"}})
    assert [accepts(bench, token) for token in (5, 4)] == [True, False]


def test_without_the_condition_the_older_token_overwrites(bench: Bench) -> None:
    accepted = [accepts(bench, token, fenced=False) for token in (7, 5)]
    assert (accepted, bench.balance("x")) == ([True, True], 5)


def test_a_stale_holder_is_refused_once_the_next_one_has_written(bench: Bench) -> None:
    stale = bench.granted("anna", lease_ms=1_000)
    bench.clock.advance(10)
    current = bench.granted("ben")
    assert accepts(bench, current.fencing_token)
    assert not accepts(bench, stale.fencing_token)


def test_the_fence_of_a_lock_has_its_token_under_the_attribute_one_likes(bench: Bench) -> None:
    grant = bench.granted("anna")
    fence = bench.writes(grant).fence_condition("written_under")
    assert fence == fence_condition(grant.fencing_token, attribute="written_under")
    assert (fence.names, fence.item) == (
        {"#fence": "written_under"},
        {"written_under": {"N": str(grant.fencing_token)}},
    )


@pytest.fixture
def table(dynamodb: DynamoDBClient, aws: LocalAws) -> Table:
    assert dynamodb
    table: Table = (
        boto3.Session(
            aws_access_key_id=aws.access_key,
            aws_secret_access_key="test",
            region_name="us-east-1",
        )
        .resource("dynamodb", endpoint_url=aws.client("dynamodb").meta.endpoint_url)
        .Table(LEDGER)
    )
    return table


def test_it_fits_puts_updates_and_deletes_of_a_table_resource(table: Table, bench: Bench) -> None:
    older, newer = fence_condition(5), fence_condition(7)

    def put(fence: Any) -> None:  # noqa: ANN401 - a fence
        table.put_item(
            Item={"account": "x", "balance": 1, **fence.plain_item},
            ConditionExpression=fence.condition,
            ExpressionAttributeNames=fence.names,
            ExpressionAttributeValues=fence.plain_values,
        )

    put(older)
    put(newer)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        put(older)
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        table.delete_item(
            Key={"account": "x"},
            ConditionExpression=older.condition,
            ExpressionAttributeNames=older.names,
            ExpressionAttributeValues=older.plain_values,
        )
    assert bench.balance("x") == 1


@pytest.mark.parametrize(
    ("token", "attribute", "field"),
    [
        (0, "fencing_token", "fencing_token"),
        (-1, "fencing_token", "fencing_token"),
        (True, "fencing_token", "fencing_token"),
        ("7", "fencing_token", "fencing_token"),
        (None, "fencing_token", "fencing_token"),
        (7, "", "attribute"),
        (7, None, "attribute"),
    ],
)
def test_what_is_no_token_makes_no_fence(token: Any, attribute: Any, field: str) -> None:  # noqa: ANN401 - what callers may try
    with pytest.raises(InvalidRequest) as caught:
        fence_condition(token, attribute=attribute)
    assert caught.value.field == field
