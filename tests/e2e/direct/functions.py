"""The deployed functions, invoked over HTTP as a caller does, errors included."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairlock.protocol.schema import lock_key
from tests.e2e.deployment import Deployment

Json = dict[str, Any]
CALLERS = 6


def unique(name: str) -> str:
    """A lock name or an owner id that no other test uses."""
    return f"{name}-{uuid.uuid4()}"


@dataclass(frozen=True)
class Invoked:
    """What came back: an answer, or an error with the name of its class."""

    payload: Json
    function_error: str | None
    log: str

    @property
    def error(self) -> str | None:
        """The class name that `ErrorEquals` of a workflow matches."""
        return str(self.payload["errorType"]) if self.function_error else None


@dataclass(frozen=True)
class Functions:
    """Acquire, heartbeat and release of the deployed stack, and access to its table."""

    deployment: Deployment

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client(
            "lambda",
            max_pool_connections=CALLERS,
            read_timeout=60,
            retries={"total_max_attempts": 1},
        )

    @cached_property
    def dynamodb(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client("dynamodb", max_pool_connections=CALLERS)

    @property
    def table(self) -> str:
        return self.deployment.table_name

    def function(self, operation: str) -> str:
        return self.deployment.function_name(operation.capitalize())

    def invoke(self, operation: str, event: object) -> Invoked:
        response = self._client.invoke(
            FunctionName=self.function(operation), Payload=json.dumps(event), LogType="Tail"
        )
        return Invoked(
            payload=json.load(response["Payload"]),
            function_error=response.get("FunctionError"),
            log=base64.b64decode(response.get("LogResult", "")).decode(),
        )

    def ask(self, operation: str, event: Mapping[str, object]) -> Json:
        """The answer; an error fails the test."""
        invoked = self.invoke(operation, event)
        assert invoked.function_error is None, invoked.payload
        return invoked.payload

    def item(self, lock_name: str) -> Json:
        found = self.dynamodb.get_item(
            TableName=self.table, Key=lock_key(lock_name), ConsistentRead=True
        )
        item: Json = found["Item"]
        return item
