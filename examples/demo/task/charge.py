"""A Lambda task worth guarding: it reads a balance, works for a while and writes the balance back.

The write carries no condition, on purpose: that is how most code that "worked for years" looks. Two
of these tasks at once on one account lose an update. The row also keeps who wrote last, so that
afterwards the lost updates can be named instead of guessed.
"""

import functools
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class CardDeclined(Exception):  # noqa: N818 the class name is what workflows match on
    """The charge was refused after the work was done; the balance is untouched."""


@functools.cache
def _dynamodb() -> "DynamoDBClient":
    import boto3  # noqa: PLC0415 importing the task must not pay for (or touch) a client

    return boto3.client("dynamodb")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return charge(event, _dynamodb(), os.environ["ACCOUNTS_TABLE_NAME"])


def charge(event: dict[str, Any], dynamodb: "DynamoDBClient", table_name: str) -> dict[str, Any]:
    """Take `amount` from the account, the naive way, and say exactly what was read and written."""
    started_at_ms = _now_ms()
    key = {"account_id": {"S": str(event["account_id"])}}
    row = dynamodb.get_item(TableName=table_name, Key=key, ConsistentRead=True)["Item"]
    balance_read = int(row["balance"]["N"])
    read_at_ms = _now_ms()
    time.sleep(float(event["work_seconds"]))
    if event.get("fail"):
        message = f"the card behind account {event['account_id']} was declined"
        raise CardDeclined(message)
    balance_written = balance_read - int(event["amount"])
    dynamodb.put_item(
        TableName=table_name,
        Item=key
        | {"balance": {"N": str(balance_written)}, "last_change": {"S": event["charge_id"]}},
    )
    return {
        "charge_id": event["charge_id"],
        "account_id": event["account_id"],
        "amount": int(event["amount"]),
        "fencing_token": event.get("fencing_token"),
        "balance_read": balance_read,
        "change_read": row["last_change"]["S"],
        "balance_written": balance_written,
        "started_at_ms": started_at_ms,
        "read_at_ms": read_at_ms,
        "written_at_ms": _now_ms(),
    }
