"""A DynamoDB task is as atomic as any other DynamoDB request.

AWS: an UpdateItem is atomic for every caller (DynamoDB developer guide, "Working with items",
Atomic counters); the optimized integration sends the same request ("Call DynamoDB APIs with Step
Functions"). Its errors are named DynamoDB.<exception>.

Emulator: requests over HTTP run one after the other on the event loop, but `states:::dynamodb:*`
tasks run beside it in the execution's own thread, so two of them can read the same old value.

This: such a task is sent through the event loop like every other request.
"""

import json
from typing import Any

import ministack.app
from ministack.services import dynamodb, stepfunctions


def apply() -> None:
    """Send the optimized DynamoDB integration's requests through the event loop."""
    stepfunctions._invoke_dynamodb = _invoke_dynamodb


def _invoke_dynamodb(operation: str, request: Any) -> Any:
    target = f"DynamoDB_20120810.{operation[0].upper()}{operation[1:]}"
    headers = {"x-amz-target": target, "content-type": "application/x-amz-json-1.0"}
    status, _, body = ministack.app.call_service_handler_sync(
        dynamodb.handle_request, "POST", "/", headers, json.dumps(request).encode(), {}
    )
    answer = json.loads(body) if body else {}
    if status < 400:  # noqa: PLR2004 - HTTP's own border between success and error
        return answer
    name = answer.get("__type", "AmazonDynamoDBException").rsplit("#", 1)[-1].rsplit(".", 1)[-1]
    raise stepfunctions._ExecutionError(f"DynamoDB.{name}", answer.get("message", ""))
