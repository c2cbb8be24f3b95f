"""`create_table`: a table as the CDK construct makes it, however often it is called."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import pytest
from botocore.exceptions import ClientError

from fairlock import InvalidRequest, LockClient, create_table
from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.support import create_lock_table
from tests.support.faulty_table import Fault, FaultyTable, client_error, fault

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
        "protected": table["DeletionProtectionEnabled"],
    }


LOCK_TABLE = {
    "key": [("pk", "HASH"), ("sk", "RANGE")],
    "billing": "PAY_PER_REQUEST",
    "status": "ACTIVE",
    "ttl": ("expiry_time", "ENABLED"),
    "recovery": "DISABLED",
    "protected": False,
}


@pytest.fixture
def dynamodb(fresh_dynamodb: DynamoDBClient) -> DynamoDBClient:
    """An account without tables, for each test."""
    return fresh_dynamodb


def test_it_makes_a_table_that_a_client_can_use(dynamodb: DynamoDBClient) -> None:
    create_table(dynamodb, "new-locks")
    assert described(dynamodb, "new-locks") == LOCK_TABLE
    with LockClient("new-locks", client=dynamodb) as locks, locks.hold("a") as lock:
        lock.check()


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("point_in_time_recovery", {"recovery": "ENABLED"}),
        ("deletion_protection", {"protected": True}),
    ],
)
def test_a_later_call_adds_what_is_missing_and_none_switches_it_off(
    dynamodb: DynamoDBClient, setting: str, kept: dict[str, Any]
) -> None:
    create_table(dynamodb, "new-locks")
    assert described(dynamodb, "new-locks") == LOCK_TABLE
    later: list[dict[str, Any]] = [{setting: True}, {}]
    for settings in later:
        create_table(dynamodb, "new-locks", **settings)
        assert described(dynamodb, "new-locks") == {**LOCK_TABLE, **kept}


def test_ttl_and_protection_are_switched_on_once_and_protection_is_waited_for(
    dynamodb: DynamoDBClient,
) -> None:
    """DynamoDB refuses to enable TTL twice."""
    calls: list[str] = []
    events = dynamodb.meta.events
    events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    create_table(dynamodb, "new-locks")
    create_table(dynamodb, "new-locks", deletion_protection=True)
    assert calls[-2:] == ["UpdateTable", "DescribeTable"]
    create_table(dynamodb, "new-locks", deletion_protection=True)
    assert (calls.count("UpdateTable"), calls.count("UpdateTimeToLive")) == (1, 1)


@pytest.mark.parametrize("others", [True, False], ids=["others are faster", "no one protects it"])
def test_a_refused_update_is_no_error_if_others_have_switched_it_on(
    dynamodb: DynamoDBClient, *, others: bool
) -> None:
    create_table(dynamodb, "new-locks")
    when: Literal["before", "after"] = "after" if others else "before"
    in_use = fault(client_error("ResourceInUseException"), when=when, of=("update_table",))
    refusing: Any = FaultyTable(dynamodb, in_use)
    with nullcontext() if others else pytest.raises(ClientError, match="ResourceInUse"):
        create_table(refusing, "new-locks", deletion_protection=True)
    assert described(dynamodb, "new-locks") == {**LOCK_TABLE, "protected": others}


@pytest.mark.parametrize(("attribute", "refused"), [("other", True), ("expiry_time", False)])
def test_a_table_whose_ttl_is_on_another_attribute_is_refused_and_left_as_it_is(
    dynamodb: DynamoDBClient, attribute: str, *, refused: bool
) -> None:
    create_lock_table(dynamodb, "theirs")
    dynamodb.update_time_to_live(
        TableName="theirs", TimeToLiveSpecification={"Enabled": True, "AttributeName": attribute}
    )
    expected = pytest.raises(InvalidRequest, match="this one has it on 'other'")
    with expected if refused else nullcontext():
        create_table(dynamodb, "theirs", deletion_protection=True)
    left = {"ttl": (attribute, "ENABLED"), "protected": not refused}
    assert described(dynamodb, "theirs") == {**LOCK_TABLE, **left}


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


def test_settings_are_put_on_a_new_table_and_no_tags_are_not_sent(dynamodb: DynamoDBClient) -> None:
    asked: list[Any] = []
    dynamodb.meta.events.register(
        "provide-client-params.dynamodb.CreateTable", lambda params, **_: asked.append(params)
    )
    create_table(dynamodb, "others")
    create_table(dynamodb, "new-locks", deletion_protection=True, tags={"team": "billing"})
    assert ["Tags" in each for each in asked] == [False, True]
    table = dynamodb.describe_table(TableName="new-locks")["Table"]
    assert table["DeletionProtectionEnabled"]
    tags = dynamodb.list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "billing"}]


def test_several_processes_may_make_it_at_once(aws: LocalAws) -> None:
    clients = [aws.client("dynamodb") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda client: create_table(client, "made-by-six"), clients))
    ttl = clients[0].describe_time_to_live(TableName="made-by-six")["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "ENABLED"


@pytest.fixture
def no_backups(dynamodb: DynamoDBClient) -> Fault:
    """DynamoDB enables the backups of a new table at some time; it stands without them.

    DynamoDB API reference, UpdateContinuousBackups, ContinuousBackupsUnavailableException.
    """
    create_table(dynamodb, "new-locks")
    return fault(
        client_error("ContinuousBackupsUnavailableException"), of=("update_continuous_backups",)
    )


def test_recovery_is_asked_for_until_the_new_table_has_backups(
    dynamodb: DynamoDBClient, no_backups: Fault, clock: ManualClock
) -> None:
    no_backups.at = range(1, 20)
    slow: Any = FaultyTable(dynamodb, no_backups)
    create_table(slow, "new-locks", point_in_time_recovery=True, clock=clock)
    assert len(slow.calls) == 20
    assert described(dynamodb, "new-locks") == {**LOCK_TABLE, "recovery": "ENABLED"}


def test_recovery_is_not_asked_for_for_ever(
    dynamodb: DynamoDBClient, no_backups: Fault, clock: ManualClock
) -> None:
    never: Any = FaultyTable(dynamodb, no_backups)
    began = clock.monotonic()
    with pytest.raises(ClientError, match="ContinuousBackupsUnavailable"):
        create_table(never, "new-locks", point_in_time_recovery=True, clock=clock)
    assert 300 <= clock.monotonic() - began < 320
    assert described(dynamodb, "new-locks") == LOCK_TABLE
