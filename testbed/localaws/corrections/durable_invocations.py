"""A durable execution is driven to its end, by one invocation at a time.

AWS (Lambda developer guide, "Lambda durable functions": "Configure", "Invoking", "Callbacks"): a
function with a DurableConfig is durable. An asynchronous invocation answers at once, with the ARN
of the execution; a synchronous one answers with the result of the execution. The function is
invoked again when something it waits for is there, and when an invocation has failed; different
executions run beside each other. That one execution is never invoked twice at a time, the guide
does not say in so many words, but its SDK relies on it: each checkpoint needs the token of the one
before.

Emulator: only a DurableConfig with a member `Enabled` counts, which neither boto3 nor
CloudFormation know; a synchronous invocation answers {"Status": "PENDING"} as soon as the function
waits; an asynchronous one has no ARN, and its result is thrown away; a failed invocation is never
repeated. One thread invokes for all executions, one after the other, and a callback that is
completed while its function runs starts a second invocation, which makes the first one's token
invalid.

This: replaces the way an execution is invoked. A failed invocation is repeated after 1, 2, 4 … at
most 60 s until the execution times out (AWS does not document its pauses).
"""

import contextvars
import json
import threading
import time
from typing import Any

from ministack.core.concurrency import run_reentrant
from ministack.core.responses import _request_account_id, _request_region
from ministack.services import lambda_durable, lambda_svc

_LONGEST_PAUSE = 60
_ANSWER_AFTER = 900
"""Seconds; a synchronous invocation of a longer execution AWS refuses to begin."""

_CALLBACK_LIMITS = {
    "TimeoutDeadline": "Callback.Timeout",
    "HeartbeatDeadline": "Callback.Heartbeat",
}
"""The deadlines of a callback, with the error that tells which one has passed."""

_mutex = threading.Lock()
_running: dict[str, bool] = {}
"""The executions that are invoked at the moment; True if there is what they were not told yet."""
_failures: dict[str, int] = {}
_functions: dict[str, dict[str, Any]] = {}
"""The version of the function that an execution runs, whatever is deployed later."""


def apply() -> None:
    """Start, resume and repeat durable executions here."""
    _wrap_invoke()
    _wrap_checkpoint()
    lambda_durable._resume_execution = _wake


def _wrap_invoke() -> None:
    original = lambda_svc._invoke

    async def invoke(
        name: str, event: Any, headers: Any, path_qualifier: Any = None, query_params: Any = None
    ) -> Any:
        function = lambda_svc._functions.get(name)
        config = (function or {}).get("config") or {}
        lowered = {key.lower(): value for key, value in headers.items()}
        kind = lowered.get("x-amz-invocation-type") or "RequestResponse"
        if not config.get("DurableConfig") or kind == "DryRun":
            return await original(name, event, headers, path_qualifier, query_params)
        qualifier = path_qualifier or lambda_svc._qp_first(query_params or {}, "Qualifier")
        record = _start(name, function, event, qualifier, lowered)
        arn = record["DurableExecutionArn"]
        answer = {
            "Content-Type": "application/json",
            "X-Amz-Executed-Version": record["Version"],
            "X-Amz-Durable-Execution-Arn": arn,
        }
        if kind == "Event":
            return 202, answer, b""
        await run_reentrant(_wait_until_over, record)
        if record["Status"] == "SUCCEEDED":
            return 200, answer, (record["Result"] or "null").encode()
        failure = record["Error"] or {}
        body = {"errorType": failure.get("ErrorType"), "errorMessage": failure.get("ErrorMessage")}
        return 200, {**answer, "X-Amz-Function-Error": "Unhandled"}, json.dumps(body).encode()

    lambda_svc._invoke = invoke


def _start(name: str, function: Any, event: Any, qualifier: str, headers: Any) -> dict[str, Any]:
    alias = function.get("aliases", {}).get(qualifier) or {}
    version = alias.get("FunctionVersion") or qualifier or "$LATEST"
    config = function["config"]
    record: dict[str, Any] = lambda_durable.create_execution_for_invoke(
        function_arn=lambda_svc._func_arn(name),
        version=version,
        input_payload=json.dumps(event),
        name=headers.get("x-amz-durable-execution-name"),
        execution_timeout=config["DurableConfig"].get("ExecutionTimeout"),
    )
    _functions[record["DurableExecutionArn"]] = function.get("versions", {}).get(version, function)
    _wake(record["DurableExecutionArn"], _request_account_id.get(), _request_region.get(), new=True)
    return record


def _wait_until_over(record: dict[str, Any]) -> None:
    until = time.monotonic() + _ANSWER_AFTER
    while record["Status"] == "RUNNING" and time.monotonic() < until:
        time.sleep(0.005)


def _wrap_checkpoint() -> None:
    original = lambda_durable.handle_checkpoint

    def handle_checkpoint(path: str, body: bytes) -> Any:
        answer = original(path, body)
        if answer[0] == 200:  # noqa: PLR2004 - HTTP's
            record = lambda_durable._executions.get(lambda_durable._parse_execution_arn(path))
            _mark_seen(record)
        return answer

    lambda_durable.handle_checkpoint = handle_checkpoint


def _wake(
    arn: str, account_id: str = "000000000000", region: str | None = None, *, new: bool = False
) -> None:
    """Invoke the function if there is anything to do for it, now or when it has returned."""
    record = lambda_durable._executions.get(arn)
    if record is None or record["Status"] != "RUNNING":
        return
    deadline = record.get("_TimeoutDeadline")
    if deadline is not None and time.time() >= deadline:
        lambda_durable._time_out_execution(record)
        return
    due = _settle(record) or new
    if not due and not _unseen(record):
        _wake_later(record, account_id, region)
        return
    with _mutex:
        if arn in _running:
            _running[arn] |= due
            return
        _running[arn] = False
    context = contextvars.copy_context()
    threading.Thread(
        target=context.run, args=(_drive, record, account_id, region), daemon=True
    ).start()


def _drive(record: dict[str, Any], account_id: str, region: str | None) -> None:
    """Invoke until the execution waits for something that is not there yet, or is over."""
    arn = record["DurableExecutionArn"]
    while True:
        failed = _invoke_once(record)
        _failures[arn] = _failures.get(arn, 0) + 1 if failed else 0
        with _mutex:
            is_due = _settle(record) or _unseen(record) or _running[arn]
            again = is_due and record["Status"] == "RUNNING"
            if failed or not again:
                del _running[arn]
                break
            _running[arn] = False
    if record["Status"] != "RUNNING":
        return
    if failed:
        pause = min(2 ** (_failures[arn] - 1), _LONGEST_PAUSE)
        timer = threading.Timer(pause, contextvars.copy_context().run, (_repeat, record))
        timer.daemon = True
        timer.start()
    else:
        _wake_later(record, account_id, region)


def _repeat(record: dict[str, Any]) -> None:
    _wake(record["DurableExecutionArn"], _request_account_id.get(), _request_region.get(), new=True)


def _wake_later(record: dict[str, Any], account_id: str, region: str | None) -> None:
    lambda_durable.schedule_resume(record["DurableExecutionArn"], account_id, region)


def _invoke_once(record: dict[str, Any]) -> bool:
    """One invocation; returns whether it failed, and so must be repeated."""
    arn = record["DurableExecutionArn"]
    record["CheckpointToken"] = lambda_durable.new_checkpoint_token()
    event = {
        "DurableExecutionArn": arn,
        "CheckpointToken": record["CheckpointToken"],
        "InitialExecutionState": {
            "Operations": lambda_durable._serialize_operations(
                record["Operations"], for_event=True
            ),
            "NextMarker": "",
        },
    }
    _mark_seen(record)
    began = time.time()
    result = lambda_svc._execute_function(_functions[arn], event)
    failed = bool(result.get("error") or result.get("throttle"))
    lambda_durable.record_invocation_completed(
        arn,
        start_ts=began,
        request_id=lambda_svc.new_uuid(),
        error=result.get("body") if failed else None,
    )
    output = result.get("body")
    if isinstance(output, str | bytes):
        output = json.loads(output)
    if failed or not isinstance(output, dict):
        return True
    if output.get("Status") == "SUCCEEDED":
        lambda_durable.mark_execution_completed(arn, output.get("Result"), None)
    elif output.get("Status") == "FAILED":
        lambda_durable.mark_execution_completed(arn, None, output.get("Error") or {"": ""})
    return False


def _settle(record: dict[str, Any]) -> bool:
    """End the waits, pauses and callbacks whose time has come; returns whether there were any."""
    now = time.time()
    ended = [_settle_one(record, operation, now) for operation in record["Operations"]]
    return any(ended)


def _settle_one(record: dict[str, Any], operation: dict[str, Any], now: float) -> bool:
    kind, status = operation["Type"], operation["Status"]
    if kind == "STEP" and status == "PENDING":
        if not _is_over(operation["StepDetails"].get("NextAttemptTimestamp"), now):
            return False
        operation["Status"] = "READY"
        return True
    if status != "STARTED":
        return False
    if kind == "WAIT" and _is_over(operation["WaitDetails"].get("ScheduledEndTimestamp"), now):
        seconds = operation["WaitDetails"]["ScheduledEndTimestamp"] - operation["StartTimestamp"]
        _end(record, operation, "SUCCEEDED", "WaitSucceeded", {"Duration": round(seconds)})
        return True
    if kind == "CALLBACK":
        for deadline, limit in _CALLBACK_LIMITS.items():
            if _is_over(operation["CallbackDetails"].get(deadline), now):
                error = {"ErrorType": limit, "ErrorMessage": "Callback timed out"}
                operation["CallbackDetails"]["Error"] = error
                told = {"Error": {"Payload": error, "Truncated": False}}
                _end(record, operation, "TIMED_OUT", "CallbackTimedOut", told)
                return True
    return False


def _is_over(moment: float | None, now: float) -> bool:
    return moment is not None and moment <= now


def _end(record: Any, operation: Any, status: str, event: str, details: Any) -> None:
    operation["Status"], operation["EndTimestamp"] = status, time.time()
    lambda_durable._emit_history_event(
        record, event, f"{event}Details", details, event_id=operation["Id"]
    )


def _unseen(record: dict[str, Any]) -> bool:
    """Whether a callback was completed of which the function does not know yet."""
    return any(
        operation["Type"] == "CALLBACK"
        and operation["Status"] in {"SUCCEEDED", "FAILED"}
        and not operation["CallbackDetails"].get("_replayed")
        for operation in record["Operations"]
    )


def _mark_seen(record: dict[str, Any]) -> None:
    """The function is told all operations as they are now."""
    arn = record["DurableExecutionArn"]
    if arn in _running:
        _running[arn] = False
    for operation in record["Operations"]:
        if operation["Type"] == "CALLBACK" and operation["Status"] in {"SUCCEEDED", "FAILED"}:
            operation["CallbackDetails"]["_replayed"] = True
