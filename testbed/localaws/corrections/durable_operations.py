"""Operations of durable executions: repeated steps, callbacks without a timeout, old tokens.

AWS (API reference, Operation, CallbackOptions; the SDK's own `operation/step.py`): a step that is
to be repeated is PENDING until its next attempt, then READY, its attempts are counted, and what it
has found so far is retained; TimeoutSeconds 0 is no timeout; a checkpoint with an outdated token
fails with an InvalidParameterValueException "Invalid checkpoint token", which the SDK takes for a
reason to end the invocation and be invoked again.

Emulator: such a step is STARTED, as if it had been interrupted, its attempts are not counted, so
that a step that runs at most once is repeated for ever, and a condition is polled with its first
state again and again; 0 is a timeout of no time; the message reads otherwise, and the SDK fails the
execution.

This: puts that right in the emulator's record of an operation.
"""

import json
from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import lambda_durable


def apply() -> None:
    """Replace what the emulator makes of updates."""
    _wrap_apply_update()
    _wrap_handle_checkpoint()
    _wrap_next_expiry()


def _wrap_apply_update() -> None:
    original = lambda_durable._apply_update

    def apply_update(record: dict[str, Any], update: dict[str, Any]) -> None:
        options = update.get("CallbackOptions") or {}
        limits = {name: seconds for name, seconds in options.items() if seconds}
        original(record, {**update, "CallbackOptions": limits})
        if update["Type"] != "STEP":
            return
        [operation] = [each for each in record["Operations"] if each["Id"] == update["Id"]]
        details = operation["StepDetails"]
        if update["Action"] == "RETRY":
            operation["Status"] = "PENDING"
            details["Attempt"] = details.get("Attempt", 0) + 1
            if "Payload" in update:
                details["Result"] = update["Payload"]
        else:
            details.pop("NextAttemptTimestamp", None)

    lambda_durable._apply_update = apply_update


def _wrap_handle_checkpoint() -> None:
    original = lambda_durable.handle_checkpoint

    def handle_checkpoint(path: str, body: bytes) -> Any:
        record = lambda_durable._executions.get(lambda_durable._parse_execution_arn(path))
        token = json.loads(body or b"{}").get("CheckpointToken")
        if record is not None and token and token != record["CheckpointToken"]:
            text = "Invalid checkpoint token"
            return error_response_json("InvalidParameterValueException", text, 400)
        return original(path, body)

    lambda_durable.handle_checkpoint = handle_checkpoint


def _wrap_next_expiry() -> None:
    original = lambda_durable._next_expiry

    def next_expiry(record: dict[str, Any]) -> float | None:
        pending = [
            operation["StepDetails"].get("NextAttemptTimestamp")
            for operation in record["Operations"]
            if operation["Type"] == "STEP" and operation["Status"] == "PENDING"
        ]
        known = [time for time in (original(record), *pending) if time is not None]
        return min(known, default=None)

    lambda_durable._next_expiry = next_expiry
