"""Express executions are not Standard ones.

AWS (developer guide, "Choosing workflow type in Step Functions"; API reference, DescribeExecution
and StartSyncExecution): an Express execution's ARN is of the kind `express`; it cannot be
described, unless a Map Run dispatched it, or stopped, has no history to read, sends no status
change events and supports neither .waitForTaskToken nor .sync; the answer of one that failed has
no output. Each start of a name is an execution of its own.

Emulator: treats it as a Standard execution in all of this.

This: makes the difference, so that a workflow that relies on what Express has not fails here too.
"""

import functools
import json
import uuid
from collections.abc import Callable
from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import stepfunctions

from testbed.localaws.corrections import _current_state, _interruptible

_AGAIN = "~"  # between a name and what tells two executions of it apart; no name contains it


def apply() -> None:
    """Make Express executions different."""
    _interruptible.install()
    _current_state.install()
    _wrap_run_execution()
    for name in ("_describe_execution", "_get_execution_history", "_stop_execution"):
        _refuse_express(name)
    for name in ("_start_execution", "_start_sync_execution"):
        _wrap_start(name)
    _wrap_status_event()
    _refuse_waiting()


def _is_express(execution: dict[str, Any] | None) -> bool:
    if (execution or {}).get("isExpress"):  # a child of a distributed Map
        return True
    machine = stepfunctions._state_machines.get((execution or {}).get("stateMachineArn"))
    return machine is not None and machine.get("type") == "EXPRESS"


@functools.cache
def _express_arn(execution_arn: str) -> str:
    """The same for the same execution: its starter and its runner both ask."""
    arn = execution_arn.partition(_AGAIN)[0].replace(":execution:", ":express:", 1)
    return f"{arn}:{uuid.uuid5(uuid.NAMESPACE_URL, execution_arn)}"


def _wrap_run_execution() -> None:
    original = stepfunctions._run_execution

    def run_execution(execution_arn: str) -> None:
        execution = stepfunctions._executions.get(execution_arn)
        if not _is_express(execution):
            original(execution_arn)
            return
        arn = _express_arn(execution_arn)
        execution["executionArn"] = arn
        execution["name"] = execution["name"].partition(_AGAIN)[0]
        stepfunctions._executions[arn] = execution
        original(arn)

    stepfunctions._run_execution = run_execution


def _refuse_express(name: str) -> None:
    original: Callable[..., Any] = getattr(stepfunctions, name)

    def refuse(request: dict[str, Any]) -> Any:
        execution = stepfunctions._executions.get(request.get("executionArn"))
        is_described = name == "_describe_execution" and "isExpress" in (execution or {})
        if _is_express(execution) and not is_described:
            text = "Invalid Arn: 'Resource type not valid in this context: express'"
            return error_response_json("InvalidArn", text, 400)
        return original(request)

    setattr(stepfunctions, name, refuse)


def _wrap_start(name: str) -> None:
    original: Callable[..., Any] = getattr(stepfunctions, name)

    def start(request: dict[str, Any]) -> Any:
        if "name" in request and _is_express(request):
            request = {**request, "name": f"{request['name']}{_AGAIN}{uuid.uuid4()}"}
        status, headers, body = original(request)
        answer = json.loads(body)
        if not _is_express(stepfunctions._executions.get(answer.get("executionArn"))):
            return status, headers, body
        answer["executionArn"] = _express_arn(answer["executionArn"])
        if answer.get("status", "SUCCEEDED") != "SUCCEEDED":
            answer.pop("output", None)
            answer.pop("outputDetails", None)
        return status, headers, json.dumps(answer).encode()

    setattr(stepfunctions, name, start)


def _wrap_status_event() -> None:
    original = stepfunctions._emit_execution_status_event

    def emit(execution: dict[str, Any]) -> None:
        if not _is_express(execution):
            original(execution)

    stepfunctions._emit_execution_status_event = emit


def _refuse_waiting() -> None:
    original = stepfunctions._execute_task

    def execute_task(state: dict[str, Any], data: Any, execution: Any, context: Any) -> Any:
        resource = state.get("Resource", "")
        if resource.endswith((".waitForTaskToken", ".sync", ".sync:2")) and _is_express(execution):
            text = f"Express state machine does not support the service integration {resource}"
            raise stepfunctions._ExecutionError("States.Runtime", text)
        return original(state, data, execution, context)

    stepfunctions._execute_task = execute_task
