"""Probes of permissions that write nothing, whether they are allowed or not.

A probe that writes is conditioned on an item that does not exist, under a key that nobody uses, so
that AWS checks the permission, then the condition, and refuses.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.cli.target import Target
from fairlock.dynamodb.failures import error_code
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY

_DENIED: Final = {"AccessDeniedException", "AccessDenied", "KMSAccessDeniedException"}
_REFUSED_BY_CONDITION: Final = {
    "ConditionalCheckFailedException",
    "TransactionCanceledException",
    "ExecutionDoesNotExist",
}
"""AWS allowed the request, and answered that there is nothing."""
_IF_THERE: Final = {
    "ConditionExpression": "attribute_exists(#pk)",
    "ExpressionAttributeNames": {"#pk": PARTITION_KEY},
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A permission.

    Attributes:
        action: its name.
        is_needed: whether nobody can hold a lock without it.
        without: what does not work without it.
    """

    action: str
    is_needed: bool
    without: str


_LOCKING: Final = "a LockClient needs it; grant what docs/client.md lists"
PROBES: Final = (
    Probe("GetItem", is_needed=True, without=_LOCKING),
    Probe("Query", is_needed=True, without=_LOCKING),
    Probe("UpdateItem", is_needed=True, without=_LOCKING),
    Probe("PutItem", is_needed=True, without="nobody can wait in the queue without it"),
    Probe("DeleteItem", is_needed=True, without="nobody is handed a lock without it"),
    Probe("ConditionCheckItem", is_needed=False, without="needed for guarded writes"),
    Probe("Scan", is_needed=False, without="needed for ls and watch only"),
    Probe(
        "DescribeExecution",
        is_needed=False,
        without="the lock of a workflow that died stays taken for longer",
    ),
)


def is_allowed(target: Target, dynamodb: Any, probe: Probe, table_arn: str | None) -> bool:  # noqa: ANN401 - a client of boto3's
    """Whether AWS allows the probe's action; nothing is written.

    Args:
        target: the table.
        dynamodb: a client of boto3's for it.
        probe: what to probe.
        table_arn: tells the account in which workflows are; None if that is not known.

    Raises:
        botocore.exceptions.ClientError: AWS refused for another reason.
        LookupError: the account is not known.
    """
    try:
        _send(target, dynamodb, probe.action, table_arn)
    except ClientError as error:
        code = error_code(error)
        if code in _DENIED:
            return False
        if code not in _REFUSED_BY_CONDITION:
            raise
    return True


def _send(target: Target, dynamodb: Any, action: str, table_arn: str | None) -> None:  # noqa: ANN401 - same
    key: dict[str, Any] = {
        PARTITION_KEY: {"S": f"PROBE#{uuid.uuid4()}"},
        SORT_KEY: {"S": "PROBE"},
    }
    table: dict[str, Any] = {"TableName": target.table}
    if action == "DescribeExecution":
        if table_arn is None:
            message = "without dynamodb:DescribeTable the account is not known"
            raise LookupError(message)
        _, partition, _, region, account, _ = table_arn.split(":", 5)
        arn = f"arn:{partition}:states:{region}:{account}:execution:fairlock-probe:none"
        target.client("stepfunctions").describe_execution(executionArn=arn)
        return
    match action:
        case "GetItem":
            dynamodb.get_item(**table, Key=key)
        case "Query":
            dynamodb.query(
                **table,
                KeyConditionExpression="#pk = :pk",
                ExpressionAttributeNames={"#pk": PARTITION_KEY},
                ExpressionAttributeValues={":pk": key[PARTITION_KEY]},
            )
        case "Scan":
            dynamodb.scan(**table, Limit=1)
        case "UpdateItem":
            dynamodb.update_item(**table, Key=key, **_IF_THERE)
        case "PutItem":
            dynamodb.put_item(**table, Item=key, **_IF_THERE)
        case "DeleteItem":
            dynamodb.delete_item(**table, Key=key, **_IF_THERE)
        case _:
            check = {"ConditionCheck": {**table, "Key": key, **_IF_THERE}}
            dynamodb.transact_write_items(TransactItems=[check])
