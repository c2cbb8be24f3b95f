"""A task with a task token: time limits, heartbeats, a failing call, a token per attempt.

AWS (developer guide, "Discover service integration patterns", Wait for a Callback with Task
Token; "Task workflow state"): TimeoutSeconds counts from the moment the task is scheduled; a task
that sends no SendTaskHeartbeat for HeartbeatSeconds fails with States.HeartbeatTimeout; if the
called function fails, the task fails with its error at once; every attempt has a new token; the
first answer to a token counts, and a token that is over answers TaskTimedOut.

Emulator: the time starts when the function has returned, heartbeats are recorded and ignored, the
function's error is swallowed (the task hangs until its timeout), all attempts share one token, and
a second answer replaces the first.

This: the wait for the callback is written again; the call itself stays the emulator's.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from ministack.core.responses import error_response_json, new_uuid
from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _current_state, _interruptible

_answer_lock = threading.Lock()


def apply() -> None:
    """Replace the wait for a callback, and guard the answers."""
    _interruptible.install()
    _current_state.install()
    stepfunctions._invoke_with_callback = _invoke_with_callback
    stepfunctions._send_task_success = _first_answer_counts(stepfunctions._send_task_success)
    stepfunctions._send_task_failure = _first_answer_counts(stepfunctions._send_task_failure)
    stepfunctions._send_task_heartbeat = _noting_the_time(stepfunctions._send_task_heartbeat)


def _invoke_with_callback(resource: str, data: Any, token: str, state: dict[str, Any]) -> Any:
    context = _current_state.context()
    task: dict[str, Any] = {
        "event": threading.Event(),
        "result": None,
        "error": None,
        "heartbeat": None,
        "heartbeat_at": time.monotonic(),
        "executionArn": context["Execution"]["Id"],
    }
    stepfunctions._task_tokens[token] = task
    try:
        # The plain form of the integration makes the same call; its answer is not the result.
        scope.start(_call, resource.replace(".waitForTaskToken", ""), data, task)
        _wait(task, state)
    finally:
        stepfunctions._task_tokens.pop(token, None)
        context["Task"] = {"Token": new_uuid()}  # for the next attempt
    if task["error"] is not None:
        raise stepfunctions._ExecutionError(task["error"]["Error"], task["error"]["Cause"])
    return json.loads(task["result"])


def _call(resource: str, data: Any, task: dict[str, Any]) -> None:
    try:
        stepfunctions._invoke_resource(resource, data)
    except stepfunctions._ExecutionError as error:
        with _answer_lock:
            if not task["event"].is_set():
                task["error"] = {"Error": error.error, "Cause": error.cause}
                task["event"].set()


def _wait(task: dict[str, Any], state: dict[str, Any]) -> None:
    timeout, heartbeat = state.get("TimeoutSeconds"), state.get("HeartbeatSeconds")
    ends_at = None if timeout is None else time.monotonic() + timeout
    while True:
        silent_at = None if heartbeat is None else task["heartbeat_at"] + heartbeat
        limits = [limit for limit in (ends_at, silent_at) if limit is not None]
        left = min(limits) - time.monotonic() if limits else None
        if scope.wait(task["event"], left):
            return
        now = time.monotonic()
        if ends_at is not None and now >= ends_at:
            raise stepfunctions._ExecutionError("States.Timeout", "")
        if heartbeat is not None and now >= task["heartbeat_at"] + heartbeat:
            raise stepfunctions._ExecutionError("States.HeartbeatTimeout", "")


def _first_answer_counts(original: Callable[..., Any]) -> Callable[..., Any]:
    def answer(request: dict[str, Any]) -> Any:
        output = request.get("output")
        if output is not None and not _is_json(output):
            return error_response_json("InvalidOutput", "Invalid Output: not JSON", 400)
        with _answer_lock:
            task = stepfunctions._task_tokens.get(request.get("taskToken"))
            if task is None or task["event"].is_set():
                text = "Task Timed Out: 'Provided task does not exist anymore'"
                return error_response_json("TaskTimedOut", text, 400)
            return original(request)

    return answer


def _noting_the_time(original: Callable[..., Any]) -> Callable[..., Any]:
    def heartbeat(request: dict[str, Any]) -> Any:
        task = stepfunctions._task_tokens.get(request.get("taskToken"))
        if task is None or task["event"].is_set():
            text = "Task Timed Out: 'Provided task does not exist anymore'"
            return error_response_json("TaskTimedOut", text, 400)
        task["heartbeat_at"] = time.monotonic()
        return original(request)

    return heartbeat


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
