"""A table in memory that answers DynamoDB's JSON: for clients that talk to it over HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.protocol.items import read_state
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, STATE
from fairlock.protocol.table_requests import Item
from fairlock.testing.fake_table import MemoryTable
from tests.histories.faulty_endpoint import Backend, Reply

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass
class WatchedTable(MemoryTable):
    """A table that looks at all leases.

    Attributes:
        moved_back: the ends of leases, before and after a write that has moved them back. Not by
            `correct_grant`: by that a holder shortens the very grant that it has just been shown.
    """

    moved_back: list[tuple[int, int]] = field(default_factory=list)

    def _write(self, kind: str, write: Mapping[str, Any]) -> None:
        before = read_state(self._item(write))
        super()._write(kind, write)
        after = read_state(self._item(write))
        if "#h_acquired_at_ms = :now" in write.get("UpdateExpression", ""):
            return
        for old in before.holders:
            new = after.holder(old.owner_id)
            same = new is not None and new.fencing_token == old.fencing_token
            if new is not None and same and new.expires_at_ms < old.expires_at_ms:
                self.moved_back.append((old.expires_at_ms, new.expires_at_ms))

    def _item(self, write: Mapping[str, Any]) -> Item:
        key = write.get("Key") or write["Item"]
        is_lock = key[SORT_KEY]["S"] == STATE
        return self.items.get((key[PARTITION_KEY]["S"], STATE), {}) if is_lock else {}


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
