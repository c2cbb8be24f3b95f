"""The history of a durable execution tells each event, and whose it is.

AWS (aws-durable-execution-conformance-tests, ExpectedExecutionHistory): the end of a wait and the
timeout of a callback are events of their own. So is an attempt of a step that is to be repeated:
StepFailed, or StepSucceeded where a condition is polled. The events of a step count its attempts.
The end of a callback has its SubType and its parent, and its start the timeouts. An invocation
that ended with its process tells the runtime's error as ErrorType and ErrorMessage.

Emulator: all of this is missing, and the error of an invocation is as Lambda answers it, with
errorType and errorMessage.

This: completes each event from its operation, and adds those of repeated steps. Those of waits and
timeouts come from `durable_invocations`, which ends them.
"""

import functools
import json
from typing import Any

from ministack.services import lambda_durable

_WHOSE = {"name": "Name", "parent_id": "ParentId", "sub_type": "SubType"}


def apply() -> None:
    """Wrap what writes events."""
    _wrap_event()
    _wrap_apply_update()
    _wrap_invocation()


def _wrap_event() -> None:
    original = lambda_durable._emit_history_event

    @functools.wraps(original)
    def emit(record: Any, kind: str, key: str, details: Any, **whose: Any) -> None:
        operations = {each["Id"]: each for each in record["Operations"]}
        operation = operations.get(whose.get("event_id"))
        if operation is None:
            original(record, kind, key, details, **whose)
            return
        told = {argument: operation.get(member) for argument, member in _WHOSE.items()}
        original(record, kind, key, {**_missing(operation, kind), **details}, **{**whose, **told})

    lambda_durable._emit_history_event = emit


def _missing(operation: Any, kind: str) -> dict[str, Any]:
    """The details that the emulator leaves out."""
    if kind in {"StepSucceeded", "StepFailed"}:
        return {"RetryDetails": {"CurrentAttempt": operation["StepDetails"].get("Attempt", 1)}}
    if kind != "CallbackStarted":
        return {}
    details, limits = operation["CallbackDetails"], {}
    if "TimeoutDeadline" in details:
        limits["Timeout"] = round(details["TimeoutDeadline"] - operation["StartTimestamp"])
    if "HeartbeatTimeoutSeconds" in details:
        limits["HeartbeatTimeout"] = round(details["HeartbeatTimeoutSeconds"])
    return limits


def _wrap_apply_update() -> None:
    original = lambda_durable._apply_update

    def apply_update(record: dict[str, Any], update: dict[str, Any]) -> None:
        original(record, update)
        if (update["Type"], update["Action"]) == ("STEP", "RETRY"):
            _tell_attempt(record, update)

    lambda_durable._apply_update = apply_update


def _tell_attempt(record: dict[str, Any], update: dict[str, Any]) -> None:
    """The end of an attempt that is not the last."""
    [operation] = [each for each in record["Operations"] if each["Id"] == update["Id"]]
    retry = {
        "CurrentAttempt": operation["StepDetails"].get("Attempt", 1),
        "NextAttemptDelaySeconds": update["StepOptions"]["NextAttemptDelaySeconds"],
    }
    error = update.get("Error")
    kind = "StepFailed" if error else "StepSucceeded"
    what = {"Error": error} if error else {"Result": update.get("Payload")}
    details = {name: {"Payload": value, "Truncated": False} for name, value in what.items()}
    lambda_durable._emit_history_event(
        record, kind, f"{kind}Details", {**details, "RetryDetails": retry}, event_id=update["Id"]
    )


def _wrap_invocation() -> None:
    original = lambda_durable.record_invocation_completed

    @functools.wraps(original)
    def completed(*arguments: Any, error: Any = None, **named: Any) -> Any:
        if error:
            told = error if isinstance(error, dict) else json.loads(error)
            error = {"ErrorType": told.get("errorType"), "ErrorMessage": told.get("errorMessage")}
        return original(*arguments, error=error, **named)

    lambda_durable.record_invocation_completed = completed
