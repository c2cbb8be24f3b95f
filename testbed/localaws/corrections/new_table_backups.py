"""A table that was just created takes no change of its backups yet.

AWS (DynamoDB API reference, UpdateContinuousBackups, ContinuousBackupsUnavailableException; seen in
issue 1654 of aws-amplify/amplify-backend as "Backups are being enabled for the table"): DynamoDB
enables continuous backups after it has created a table, for some time also after the table is
ACTIVE, and refuses to switch on point-in-time recovery meanwhile. botocore does not repeat that.

Emulator: takes it at once.

This: refuses it in the first second of a table that CreateTable has made. How long AWS takes
is not documented. CloudFormation, which repeats by itself, is not refused.
"""

import json
import time
from http import HTTPStatus
from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import dynamodb

_SECONDS = 1
_REASON = (
    "Backups are being enabled for the table: {}. Please retry later. Continuous backups are"
    " unavailable until then."
)
_ready_from: dict[str, float] = {}
"""By table, the reading of the monotonic clock from which its backups may be changed."""


def apply() -> None:
    """Note when tables are created, and ask before backups are changed."""
    original = dynamodb.handle_request

    async def handle_request(
        method: str, path: str, headers: Any, body: bytes, query_params: Any
    ) -> Any:
        action = headers.get("x-amz-target", "").rpartition(".")[2]
        if action not in {"CreateTable", "UpdateContinuousBackups"}:
            return await original(method, path, headers, body, query_params)
        name = str(json.loads(body or b"{}").get("TableName"))
        if action == "UpdateContinuousBackups" and time.monotonic() < _ready_from.get(name, 0):
            reason = _REASON.format(name)
            return error_response_json("ContinuousBackupsUnavailableException", reason, 400)
        answer = await original(method, path, headers, body, query_params)
        if action == "CreateTable" and answer[0] == HTTPStatus.OK:
            _ready_from[name] = time.monotonic() + _SECONDS
        return answer

    dynamodb.handle_request = handle_request
