"""The durable function: it draws up a bill, sleeps until that is settled, and charges.

All of it under the lock `customer/<id>`. Other executions, workflows and clients that want this
customer wait in the same queue; of this function nothing runs while it waits or sleeps.
"""

import os
from datetime import timedelta
from typing import Any

import boto3
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import hold

REFUSES_OLDER_TOKENS = "attribute_not_exists(fencing_token) OR fencing_token <= :token"


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> dict[str, Any]:
    lock_name = f"customer/{event['customer_id']}"
    with hold(context, lock_name, max_wait=timedelta(minutes=30)) as lock:
        balance = context.step(lambda _: read_balance(event["customer_id"]), name="read")
        context.wait(Duration.from_seconds(event["settles_after_seconds"]), name="settle")
        context.step(
            lambda _: write_balance(
                event["customer_id"], balance - event["amount"], lock.fencing_token
            ),
            name="charge",
        )
    return {"balance": balance - event["amount"], "fencing_token": lock.fencing_token}


def read_balance(customer_id: str) -> int:
    item = customers().get_item(Key={"customer_id": customer_id}, ConsistentRead=True).get("Item")
    return int(item["balance"]) if item else 0


def write_balance(customer_id: str, balance: int, token: int) -> None:
    """May be repeated: the balance was computed by a step of its own."""
    customers().put_item(
        Item={"customer_id": customer_id, "balance": balance, "fencing_token": token},
        ConditionExpression=REFUSES_OLDER_TOKENS,
        ExpressionAttributeValues={":token": token},
    )


def customers() -> Any:
    return boto3.resource("dynamodb").Table(os.environ["CUSTOMERS_TABLE_NAME"])
