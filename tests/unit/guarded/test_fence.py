"""The fence for single writes: an item that has seen a newer token refuses older ones."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from fairlock.errors import InvalidRequest
from fairlock.guarded import GuardedWrites, condition_check, fence_condition
from fairlock.protocol.schema import holder_attribute, lock_key, token_attribute
from testbed.localaws import LocalAws
from tests.support import LOCK, TABLE, owner
from tests.unit.guarded.conftest import LEDGER, Bench, deposit, taken_over_twice

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.service_resource import Table
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


KEY: dict[str, Any] = {"account": {"S": "x"}}


def accepts(bench: Bench, token: int) -> bool:
    """Whether an update under a token is accepted."""
    fence = fence_condition(token)
    change = f"SET balance = :token, {fence.assignment}"
    try:
        bench.client.update_item(
            TableName=LEDGER,
            Key=KEY,
            UpdateExpression=change,
            ExpressionAttributeNames=fence.names,
            ExpressionAttributeValues={":token": {"N": str(token)}, **fence.values},
            ConditionExpression=fence.condition,
        )
    except bench.client.exceptions.ConditionalCheckFailedException:
        return False
    return True


def test_the_first_write_and_equal_and_newer_tokens_are_accepted_and_older_ones_refused(
    bench: Bench,
) -> None:
    tokens = [5, 5, 7, 5, 6, 7, 8]
    assert [token for token in tokens if accepts(bench, token)] == [5, 5, 7, 7, 8]
    assert bench.balance("x") == 8


def test_an_item_that_was_there_before_it_was_fenced_is_accepted_once(bench: Bench) -> None:
    bench.client.put_item(TableName=LEDGER, Item={**KEY, "balance": {"N": "1"}})
    assert [accepts(bench, token) for token in (5, 4)] == [True, False]


def test_the_fence_of_a_lock_has_its_token_under_the_attribute_one_likes(bench: Bench) -> None:
    grant = bench.grant("anna")
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
            aws_access_key_id=aws.access_key, aws_secret_access_key="test", region_name="us-east-1"
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


# The item that makes a transaction of the application depend on the lock.


def reasons(bench: Bench, *items: TransactWriteItemTypeDef) -> list[str]:
    """Sends a transaction of the application's own; an empty list if it was committed."""
    try:
        bench.client.transact_write_items(TransactItems=list(items))
    except ClientError as error:
        return [reason["Code"] for reason in error.response["CancellationReasons"]]
    return []


def test_it_names_the_holder_and_its_token_and_nothing_else() -> None:
    check = condition_check(
        table_name=TABLE, lock_name=LOCK, owner_id=owner("anna"), fencing_token=17
    )
    assert check == {
        "ConditionCheck": {
            "TableName": TABLE,
            "Key": lock_key(LOCK),
            "ConditionExpression": "attribute_exists(#mine) AND #guard_token = :guard_token "
            "AND attribute_not_exists(#guarded.#h_shared)",
            "ExpressionAttributeNames": {
                "#mine": holder_attribute(owner("anna")),
                "#guard_token": token_attribute(owner("anna")),
                "#guarded": holder_attribute(owner("anna")),
                "#h_shared": "s",
            },
            "ExpressionAttributeValues": {":guard_token": {"N": "17"}},
        }
    }


def test_only_the_token_of_a_grant_that_stands_passes_though_its_lease_is_over(
    bench: Bench,
) -> None:
    older, other, newer = taken_over_twice(bench)
    for gone in (older, other):
        assert reasons(bench, bench.writes(gone).condition_check(), deposit("x")) == [
            "ConditionalCheckFailed",
            "None",
        ]
    bench.clock.advance(3600)
    assert reasons(bench, bench.writes(newer).condition_check(), deposit("x")) == []
    assert bench.balance("x") == 1


def test_two_locks_can_be_checked_in_one_transaction(bench: Bench) -> None:
    grants = bench.grant("anna"), bench.grant("anna", lock_name="other")
    checks = [bench.writes(grant).condition_check() for grant in grants]
    assert reasons(bench, *checks, deposit("x")) == []
    bench.release("anna")
    assert reasons(bench, *checks, deposit("x")) == ["ConditionalCheckFailed", "None", "None"]
    assert bench.balance("x") == 1


class Name(str, Enum):  # noqa: UP042 - StrEnum has no other text; programs have both
    LOCK = LOCK


def test_a_name_of_an_enumeration_is_its_text() -> None:
    by_text, by_member = (
        condition_check(table_name=TABLE, lock_name=name, owner_id=owner("anna"), fencing_token=17)
        for name in (LOCK, Name.LOCK)
    )
    assert by_text == by_member


Make = Callable[..., object]
GRANT: dict[str, Any] = {"lock_name": LOCK, "owner_id": owner("anna"), "fencing_token": 17}
CHECK = partial(condition_check, **{"table_name": TABLE, **GRANT})
FENCE = partial(fence_condition, 7)
NO_TOKENS = (0, -1, True, "17", None)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        *((fence_condition, "fencing_token", value) for value in NO_TOKENS),
        *((FENCE, "attribute", value) for value in ("", None)),
        *((CHECK, "table_name", value) for value in ("", None)),
        *((CHECK, "lock_name", value) for value in ("", 7)),
        *((CHECK, "owner_id", value) for value in ("short", None)),
        *((CHECK, "fencing_token", value) for value in NO_TOKENS),
    ],
)
def test_an_argument_that_breaks_its_rule_is_refused_by_name(
    bench: Bench,
    make: Make,
    field: str,
    value: Any,  # noqa: ANN401 - anything
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**{field: value})
    assert caught.value.field == field
    if make is CHECK:
        with pytest.raises(InvalidRequest):
            GuardedWrites(bench.client, **{"table_name": TABLE, **GRANT, field: value})
