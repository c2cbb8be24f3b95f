"""The lock table as a construct, with the names of its key from the protocol."""

from __future__ import annotations

from typing import Final

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE

_READS: Final = ("GetItem", "Query")
_ADMINISTRATION: Final = (
    *("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem"),
    *("DescribeTable", "DescribeTimeToLive"),
)
_WRITES: Final = ("ConditionCheckItem", "PutItem", "UpdateItem", "DeleteItem")


def lock_table(
    scope: Construct,
    *,
    table_name: str | None,
    encryption_key: kms.IKey | None,
    removal_policy: RemovalPolicy,
    deletion_protection: bool,
    has_stream: bool,
) -> dynamodb.Table:
    """One table, on demand, with TTL, point-in-time recovery and encryption at rest.

    A `Table`, not a `TableV2`: that one is a global table, and one replica more would let two
    regions grant the same lock.
    """
    return dynamodb.Table(
        scope,
        "Table",
        table_name=table_name,
        partition_key=dynamodb.Attribute(name=PARTITION_KEY, type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name=SORT_KEY, type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute=TTL_ATTRIBUTE,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        encryption=None if encryption_key else dynamodb.TableEncryption.AWS_MANAGED,
        encryption_key=encryption_key,
        removal_policy=removal_policy,
        deletion_protection=deletion_protection,
        stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if has_stream else None,
    )


def grant_client_actions(table: dynamodb.ITable, grantee: iam.IGrantable) -> iam.Grant:
    """Allows every request of the protocol, with guarded writes and the use of the table's key."""
    if table.encryption_key is not None:
        table.encryption_key.grant_encrypt_decrypt(grantee)
    return table.grant(grantee, *(f"dynamodb:{action}" for action in sorted(_READS + _WRITES)))


def grant_administration_actions(table: dynamodb.ITable, grantee: iam.IGrantable) -> iam.Grant:
    """Allows to list, pause and free all locks, and what `fairlock doctor` reads."""
    if table.encryption_key is not None:
        table.encryption_key.grant_encrypt_decrypt(grantee)
    return table.grant(grantee, *(f"dynamodb:{action}" for action in sorted(_ADMINISTRATION)))
