"""StopExecution stops what is under way.

AWS: StopExecution ends a running execution (API reference, StopExecution; developer guide,
"Standard and Express workflow types"): no further state is entered, the status stays ABORTED. A
Lambda function that is already running is not interrupted, and its answer is ignored.

Emulator: only the status is written. Waits, retries, callbacks and branches go on, their side
effects happen, and a later failure turns ABORTED into FAILED.

This: the execution's scope ends with the call, so every one of its threads leaves at its next
step, and the first final status stays.
"""

from typing import Any

from ministack.core.responses import error_response_json
from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _interruptible


def apply() -> None:
    """End the scope of an execution that is stopped."""
    _interruptible.install()
    original = stepfunctions._stop_execution

    def stop_execution(request: dict[str, Any]) -> Any:
        try:
            answer = original(request)
        except scope.Cancelled:  # it ended by itself in this very moment
            answer = error_response_json("ValidationException", "Execution is not running", 400)
        execution = stepfunctions._executions.get(request.get("executionArn"))
        if execution is not None and execution["status"] == "ABORTED":
            _forget_task_tokens(execution["executionArn"])
            execution.scope.end()
        return answer

    stepfunctions._stop_execution = stop_execution


def _forget_task_tokens(execution_arn: str) -> None:
    """A token of a stopped execution completes nothing: TaskDoesNotExist."""
    tokens = stepfunctions._task_tokens
    for token, task in list(tokens.items()):
        if task.get("executionArn") == execution_arn:
            tokens.pop(token, None)
