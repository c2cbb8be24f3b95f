"""Permissions for some partition keys of a table, where permissions are enforced."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import boto3
import pytest
from botocore.exceptions import ClientError

from testbed.localaws import LocalAws

TABLE: Final = "locks"
MINE, OTHER = "LOCK#team-a/x", "LOCK#team-b/x"
CONDITION: Final = {
    "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["LOCK#team-a/*"]},
    "Null": {"dynamodb:LeadingKeys": "false"},
}


@pytest.fixture(scope="module")
def enforcing() -> Iterator[Callable[..., Any]]:
    """The client of a user with the condition, in an AWS with and without the correction."""
    with contextlib.ExitStack() as stack:

        def made(*without: str) -> Any:
            aws = stack.enter_context(LocalAws(settings={"AUTH": "true"}, without=without))
            make_table(aws.client("dynamodb"))
            return user(aws)

        yield made


def make_table(dynamodb: Any) -> None:
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
        ],
    )


def user(aws: LocalAws) -> Any:
    identities = aws.client("iam")
    identities.create_user(UserName="team-a")
    statement = {
        "Effect": "Allow",
        "Action": "dynamodb:*",
        "Resource": "*",
        "Condition": CONDITION,
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    identities.put_user_policy(UserName="team-a", PolicyName="it", PolicyDocument=document)
    key = identities.create_access_key(UserName="team-a")["AccessKey"]
    return boto3.client(
        "dynamodb",
        endpoint_url=aws.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=key["AccessKeyId"],
        aws_secret_access_key=key["SecretAccessKey"],
    )


def key(partition: str) -> Any:
    return {"pk": {"S": partition}, "sk": {"S": "STATE"}}


REQUESTS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "get_item": lambda db, pk: db.get_item(TableName=TABLE, Key=key(pk)),
    "put_item": lambda db, pk: db.put_item(TableName=TABLE, Item=key(pk)),
    "update_item": lambda db, pk: db.update_item(TableName=TABLE, Key=key(pk)),
    "delete_item": lambda db, pk: db.delete_item(TableName=TABLE, Key=key(pk)),
    "query": lambda db, pk: db.query(
        TableName=TABLE,
        KeyConditionExpression="#pk = :pk AND begins_with(sk, :s)",
        ExpressionAttributeNames={"#pk": "pk"},
        ExpressionAttributeValues={":pk": {"S": pk}, ":s": {"S": "WAITER"}},
    ),
    "transact_write_items": lambda db, pk: db.transact_write_items(
        TransactItems=[
            {"Put": {"TableName": TABLE, "Item": key(MINE)}},
            {"Delete": {"TableName": TABLE, "Key": {**key(pk), "sk": {"S": "WAITER"}}}},
        ]
    ),
    "batch_get_item": lambda db, pk: db.batch_get_item(RequestItems={TABLE: {"Keys": [key(pk)]}}),
    "batch_write_item": lambda db, pk: db.batch_write_item(
        RequestItems={TABLE: [{"PutRequest": {"Item": key(pk)}}]}
    ),
}


def answer(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


def test_each_request_reaches_the_named_partitions_only(enforcing: Callable[..., Any]) -> None:
    """DynamoDB developer guide, "Specifying conditions: Using condition keys"."""
    dynamodb = enforcing()
    asked = {
        name: [answer(lambda pk=pk, ask=ask: ask(dynamodb, pk)) for pk in (MINE, OTHER)]  # type: ignore[misc]  # bound now
        for name, ask in REQUESTS.items()
    }
    assert asked == {name: ["done", "AccessDeniedException"] for name in REQUESTS}
    assert answer(lambda: dynamodb.scan(TableName=TABLE)) == "AccessDeniedException"


def test_control_no_request_has_a_leading_key(enforcing: Callable[..., Any]) -> None:
    dynamodb = enforcing("leading_keys")
    assert answer(lambda: REQUESTS["get_item"](dynamodb, MINE)) == "AccessDeniedException"
