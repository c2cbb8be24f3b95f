"""The demo's durable function: it reads a balance, sleeps without running, and writes it back.

It holds the lock `account/<id>` around both, the same lock as the guards of the demo's workflows.
"""

import os
from datetime import timedelta
from typing import Any

import boto3
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import hold


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> dict[str, Any]:
    name = f"account/{event['account_id']}"
    with hold(context, name, max_wait=timedelta(minutes=2)) as lock:
        balance = context.step(lambda _: read(event), name="read")
        context.wait(Duration.from_seconds(1), name="sleep")
        context.step(lambda _: write(event, balance - event["amount"]), name="write")
    return {"charge_id": event["charge_id"], "fencing_token": lock.fencing_token}


def read(event: dict[str, Any]) -> int:
    row = _dynamodb().get_item(TableName=_table(), Key=_key(event), ConsistentRead=True)["Item"]
    return int(row["balance"]["N"])


def write(event: dict[str, Any], balance: int) -> None:
    """Without any condition, like the task of the workflows."""
    values = {"balance": {"N": str(balance)}, "last_change": {"S": event["charge_id"]}}
    _dynamodb().put_item(TableName=_table(), Item=_key(event) | values)


def _key(event: dict[str, Any]) -> dict[str, Any]:
    return {"account_id": {"S": event["account_id"]}}


def _table() -> str:
    return os.environ["ACCOUNTS_TABLE_NAME"]


def _dynamodb() -> Any:
    return boto3.client("dynamodb")
