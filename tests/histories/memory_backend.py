"""A table in memory that answers DynamoDB's JSON: for clients that talk to it over HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.testing.fake_table import MemoryTable
from tests.histories.faulty_endpoint import Backend, Reply

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def memory_backend(table: Any = None) -> Backend:  # noqa: ANN401 - a MemoryTable or what wraps one
    """Answers requests from a table in memory, one at a time."""
    mutex, inner = threading.Lock(), MemoryTable() if table is None else table

    def send(operation: str, body: bytes, _headers: Mapping[str, str]) -> Reply:
        method = getattr(inner, _WORD_START.sub("_", operation).lower())
        try:
            with mutex:
                answer = method(**json.loads(body))
        except ClientError as error:
            return Reply(400, json.dumps(_described(error)).encode())
        return Reply(200, json.dumps(answer).encode())

    return send


def _described(error: ClientError) -> dict[str, Any]:
    """An error as DynamoDB describes it; with the item, or the reasons, that came with it."""
    response: dict[str, Any] = dict(error.response)
    code = response.pop("Error")["Code"]
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no", **response}
