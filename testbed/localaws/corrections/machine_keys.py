"""A state machine's own KMS key protects the data of its executions.

AWS (Step Functions developer guide, "Data at rest encryption"; API reference, DescribeExecution):
a caller that describes an execution of a machine with a customer managed key needs kms:Decrypt on
that key, unless `includedData` is METADATA_ONLY; then the answer has no data. The machine's own
role uses the key for everything else.

Emulator: keeps the key's name, asks no one for a permission on it, and ignores `includedData`.

This: with the setting AUTH it refuses who may not decrypt; METADATA_ONLY leaves the data out.
"""

import json
from typing import Any

import ministack.app
from ministack.core.iam_evaluator import enforce
from ministack.core.responses import error_response_json, get_region
from ministack.core.router import extract_access_key_id
from ministack.services import stepfunctions

_DATA = ("input", "inputDetails", "output", "outputDetails", "error", "cause")


def apply() -> None:
    """Ask before an execution is described."""
    original = stepfunctions.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
        described = headers.get("x-amz-target", "").endswith(".DescribeExecution")
        request = json.loads(body) if described else {}
        without_data = request.get("includedData") == "METADATA_ONLY"
        if described and not without_data:
            refusal = _refusal(request, extract_access_key_id(headers, query))
            if refusal is not None:
                return stepfunctions._finalize_response(refusal)
        answer = await original(method, path, headers, body, query)
        return _without_data(answer) if without_data else answer

    stepfunctions.handle_request = handle_request


def _refusal(request: dict[str, Any], caller: str) -> Any:
    execution = stepfunctions._executions.get(request.get("executionArn")) or {}
    key = (execution.get("encryptionConfiguration") or {}).get("kmsKeyId")
    if not (key and ministack.app.AUTH):
        return None
    if enforce(caller, "kms:Decrypt", "kms", get_region(), resource_arn=key) is None:
        return None
    text = f"The caller lacks kms:Decrypt on {key}"
    return error_response_json("KmsAccessDeniedException", text, 400)


def _without_data(answer: Any) -> Any:
    status, headers, body = answer
    told = {name: each for name, each in json.loads(body).items() if name not in _DATA}
    return status, headers, json.dumps(told).encode()
