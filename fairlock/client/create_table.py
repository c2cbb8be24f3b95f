"""`create_table`: the lock table, for people without CDK."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fairlock.aws.retry import CLOCK, DYNAMODB_CLIENT, RepeatedRequest, RetryBudget, error_code
from fairlock.client.arguments import require_bool
from fairlock.client.connection import Connection
from fairlock.clock import Clock, SystemClock
from fairlock.errors import InvalidRequest, explained
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


_LONGEST_SECONDS: Final = 300
"""DynamoDB says nowhere how long it takes to enable the backups of a new table."""


@explained
def create_table(
    client: DynamoDBClient,
    name: str,
    *,
    point_in_time_recovery: bool = False,
    deletion_protection: bool = False,
    tags: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> None:
    """Makes the lock table, on demand and with TTL, and waits until it can be used.

    You can repeat the call, even from several processes at once: it keeps what exists, adds the
    settings that are missing, and never switches one off.

    Args:
        client: a DynamoDB client. It needs CreateTable, DescribeTable, UpdateTimeToLive and
            DescribeTimeToLive; UpdateContinuousBackups for `point_in_time_recovery`, UpdateTable
            for `deletion_protection` of a table that is there, TagResource for `tags`.
        name: the table's name.
        point_in_time_recovery: whether the table can be restored to any second of the last weeks.
        deletion_protection: whether DeleteTable is refused until you switch this off.
        tags: put on the table when it is made, and on none that is there.
        clock: measures and waits; for tests.

    Raises:
        InvalidRequest: an argument breaks its rule; or a table of that name exists, but its key is
            not that of a lock table, or its TTL is on another attribute. Nothing was changed.
        botocore.exceptions.ClientError: no permission, or DynamoDB refuses. After
            ContinuousBackupsUnavailableException the table can be used, without recovery: call
            again.
    """
    rules.require("client", DYNAMODB_CLIENT, client)
    Connection.check("client", client, has="exceptions", service="dynamodb")
    rules.require("name", rules.TABLE_NAME, name, show_text=True)
    require_bool("point_in_time_recovery", point_in_time_recovery)
    require_bool("deletion_protection", deletion_protection)
    clock = SystemClock() if clock is None else clock
    rules.require("clock", CLOCK, clock)
    given = _tags(tags)
    # In use: the table is there, or another process makes it at this moment.
    with suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
                {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": PARTITION_KEY, "AttributeType": "S"},
                {"AttributeName": SORT_KEY, "AttributeType": "S"},
            ],
            DeletionProtectionEnabled=deletion_protection,
            **given,
        )
    _wait_until_active(client, name)
    _require_lock_table(client, name)
    _enable_ttl(client, name)
    if deletion_protection:
        _protect(client, name)
    if point_in_time_recovery:
        _enable_recovery(client, name, clock)


def _tags(tags: Mapping[str, str] | None) -> dict[str, Any]:
    """Nothing without tags: whether CreateTable takes an empty list is not documented."""
    if tags is not None and not _is_mapping_of_text(tags):
        rule = 'must be a mapping from text to text, such as {"team": "billing"}, or None'
        raise InvalidRequest(field="tags", rule=rule, value=tags)
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]} if tags else {}


def _is_mapping_of_text(tags: object) -> bool:
    if not isinstance(tags, Mapping):
        return False
    return all(isinstance(text, str) for pair in tags.items() for text in pair)


def _wait_until_active(client: DynamoDBClient, name: str) -> None:
    client.get_waiter("table_exists").wait(
        TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )


def _require_lock_table(client: DynamoDBClient, name: str) -> None:
    description = client.describe_table(TableName=name)["Table"]
    key = {element["KeyType"]: element["AttributeName"] for element in description["KeySchema"]}
    if key != {"HASH": PARTITION_KEY, "RANGE": SORT_KEY}:
        rule = (
            f"must be a new table, or one with the string keys {PARTITION_KEY} and {SORT_KEY}: "
            "choose another name"
        )
        raise InvalidRequest(field="name", rule=rule, value=name)


def _enable_ttl(client: DynamoDBClient, name: str) -> None:
    """Enables TTL unless it is enabled, for DynamoDB refuses to enable it twice."""
    if _has_ttl(client, name):
        return
    try:
        client.update_time_to_live(
            TableName=name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL_ATTRIBUTE},
        )
    except client.exceptions.ClientError:
        if not _has_ttl(client, name):  # Else another process was faster.
            raise


def _has_ttl(client: DynamoDBClient, name: str) -> bool:
    """Whether TTL is on; a table has it on one attribute only."""
    found = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    is_on = found.get("TimeToLiveStatus") in {"ENABLED", "ENABLING"}
    if is_on and found["AttributeName"] != TTL_ATTRIBUTE:
        rule = (
            f"must be a table without TTL, or with TTL on {TTL_ATTRIBUTE!r}; this one has it on "
            f"{found['AttributeName']!r}, and DynamoDB allows one attribute"
        )
        raise InvalidRequest(field="name", rule=rule, value=name)
    return is_on


def _protect(client: DynamoDBClient, name: str) -> None:
    if _is_protected(client, name):
        return
    try:
        client.update_table(TableName=name, DeletionProtectionEnabled=True)
    except client.exceptions.ClientError:
        _wait_until_active(client, name)
        if not _is_protected(client, name):  # Else another process was faster.
            raise
    _wait_until_active(client, name)


def _is_protected(client: DynamoDBClient, name: str) -> bool:
    return client.describe_table(TableName=name)["Table"].get("DeletionProtectionEnabled", False)


def _enable_recovery(client: DynamoDBClient, name: str, clock: Clock) -> None:
    """DynamoDB refuses this for a while after a table is active; botocore does not repeat that."""
    budget = RetryBudget(
        seconds=_LONGEST_SECONDS, clock=clock, first_pause_seconds=2, longest_pause_seconds=15
    )
    no_backups_yet = "ContinuousBackupsUnavailableException"
    request = RepeatedRequest(budget, repeat_after=lambda e: error_code(e) == no_backups_yet)
    request.send(
        client.update_continuous_backups,
        TableName=name,
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
    )
