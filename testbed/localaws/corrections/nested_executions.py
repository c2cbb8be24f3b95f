"""A nested execution that is waited for is an execution like any other.

AWS (developer guide, "Start workflow executions from a task state" and "Integrate services with
Step Functions", Run a Job): startExecution.sync starts an ordinary Standard execution, which sends
status events and can be stopped and redriven; the task ends with it. If the task is aborted, Step
Functions tries to stop the execution, for which the role has states:StopExecution.

Emulator: runs it as a synchronous one, which sends no events and goes on without its parent.

This: starts it, waits for its end, and stops it if the task is aborted. Its failure keeps the name
that the nested execution gave it, as in the emulator.
"""

import json
from http import HTTPStatus
from typing import Any

from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _interruptible

_PAUSE_SECONDS = 0.05
_DATA = {"Input": "input", "Name": "name", "StartDate": "startDate", "StopDate": "stopDate"}


def apply() -> None:
    """Wait for nested executions here."""
    _interruptible.install()
    stepfunctions._invoke_nested_start_execution_sync = _run


def _run(resource: str, arguments: dict[str, Any]) -> dict[str, Any]:
    request = stepfunctions._nested_start_execution_request(arguments)
    status, _, body = stepfunctions._start_execution(request)
    started = json.loads(body)
    if status >= HTTPStatus.BAD_REQUEST:
        raise stepfunctions._ExecutionError(started["__type"], started.get("message", ""))
    arn = started["executionArn"]
    execution = stepfunctions._executions[arn]
    try:
        while execution["status"] == "RUNNING":
            scope.sleep(_PAUSE_SECONDS)
    except scope.Cancelled:
        scope.current.set(None)  # the other execution is not a part of what is over
        stepfunctions._stop_execution({"executionArn": arn})
        raise
    if execution["status"] != "SUCCEEDED":
        raise stepfunctions._ExecutionError(*stepfunctions._nested_execution_failure(execution))
    output = execution["output"]
    return {
        **{name: execution.get(key) for name, key in _DATA.items()},
        "ExecutionArn": arn,
        "StateMachineArn": execution["stateMachineArn"],
        "Status": execution["status"],
        "InputDetails": {"included": True},
        "OutputDetails": {"included": True},
        "Output": json.loads(output) if resource.endswith(".sync:2") else output,
    }
