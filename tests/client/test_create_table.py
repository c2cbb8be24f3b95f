"""`create_table`: a table as the CDK construct makes it, however often it is called."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import InvalidRequest, LockClient, create_table
from localaws import LocalAws

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def described(client: DynamoDBClient, name: str) -> dict[str, Any]:
    table = client.describe_table(TableName=name)["Table"]
    ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    backups = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    return {
        "key": [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]],
        "billing": table["BillingModeSummary"]["BillingMode"],
        "status": table["TableStatus"],
        "ttl": (ttl["AttributeName"], ttl["TimeToLiveStatus"]),
        "recovery": backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"],
    }


LOCK_TABLE = {
    "key": [("pk", "HASH"), ("sk", "RANGE")],
    "billing": "PAY_PER_REQUEST",
    "status": "ACTIVE",
    "ttl": ("expiry_time", "ENABLED"),
    "recovery": "DISABLED",
}


def test_it_makes_a_table_that_a_client_can_use(dynamodb: DynamoDBClient) -> None:
    create_table(dynamodb, "new-locks")
    assert described(dynamodb, "new-locks") == LOCK_TABLE
    with LockClient("new-locks", client=dynamodb) as locks, locks.hold("a") as lock:
        lock.check()


def test_a_second_call_changes_nothing_and_adds_what_is_missing(dynamodb: DynamoDBClient) -> None:
    create_table(dynamodb, "new-locks")
    create_table(dynamodb, "new-locks", point_in_time_recovery=True)
    create_table(dynamodb, "new-locks")
    assert described(dynamodb, "new-locks") == {**LOCK_TABLE, "recovery": "ENABLED"}


def test_ttl_is_not_enabled_twice_because_dynamodb_refuses_that(dynamodb: DynamoDBClient) -> None:
    calls: list[str] = []
    dynamodb.meta.events.register(
        "before-send.dynamodb.UpdateTimeToLive", lambda **_: calls.append("enable")
    )
    for _ in range(2):
        create_table(dynamodb, "new-locks")
    assert calls == ["enable"]


def test_a_table_of_another_key_is_refused(dynamodb: DynamoDBClient) -> None:
    dynamodb.create_table(
        TableName="orders",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
    )
    with pytest.raises(InvalidRequest) as refused:
        create_table(dynamodb, "orders")
    assert refused.value.field == "name"


def test_settings_are_put_on_a_new_table(dynamodb: DynamoDBClient) -> None:
    create_table(dynamodb, "new-locks", deletion_protection=True, tags={"team": "billing"})
    table = dynamodb.describe_table(TableName="new-locks")["Table"]
    tags = dynamodb.list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"]
    assert (table["DeletionProtectionEnabled"], tags) == (
        True,
        [{"Key": "team", "Value": "billing"}],
    )


def test_several_processes_may_make_it_at_once(aws: LocalAws) -> None:
    clients = [aws.client("dynamodb") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda client: create_table(client, "made-by-six"), clients))
    ttl = clients[0].describe_time_to_live(TableName="made-by-six")["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "ENABLED"
