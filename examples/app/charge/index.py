"""Charges a customer once for each grant of the lock.

The table refuses a fencing token that is older than the last one. Lambda may run a call twice: the
second one finds its own token, and changes nothing.
"""

from __future__ import annotations

import os
from typing import Any

import boto3
from botocore.exceptions import ClientError

accounts = boto3.resource("dynamodb").Table(os.environ["ACCOUNTS"])


def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
    token = int(event["fencing_token"])
    try:
        accounts.update_item(
            Key={"id": event["customer_id"]},
            UpdateExpression="SET fencing_token = :token ADD charges :one",
            ConditionExpression="attribute_not_exists(fencing_token) OR fencing_token < :token",
            ExpressionAttributeValues={":token": token, ":one": 1},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ClientError as refused:
        answer: dict[str, Any] = {**refused.response}
        if answer.get("Item", {}).get("fencing_token") != {"N": str(token)}:
            raise
    return {"charged": event["customer_id"]}
