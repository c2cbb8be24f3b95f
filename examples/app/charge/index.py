"""Charges a customer. A fencing token that is older than the last one is refused by the table."""

from __future__ import annotations

import os
from typing import Any

import boto3

accounts = boto3.resource("dynamodb").Table(os.environ["ACCOUNTS"])


def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
    accounts.update_item(
        Key={"id": event["customer_id"]},
        UpdateExpression="SET fencing_token = :token ADD charges :one",
        ConditionExpression="attribute_not_exists(fencing_token) OR fencing_token <= :token",
        ExpressionAttributeValues={":token": event["fencing_token"], ":one": 1},
    )
    return {"charged": event["customer_id"]}
