"""Time limits of a task may be given by path or by expression.

AWS: TimeoutSeconds and HeartbeatSeconds are numbers or, in JSONata states, expressions; JSONPath
states may select them with TimeoutSecondsPath and HeartbeatSecondsPath (developer guide, "Task
workflow state"). Exceeding the first is recorded as TaskTimedOut with the error States.Timeout.

Emulator: the paths are ignored, an expression breaks the task, and the history says TaskFailed.

This: both fields are evaluated before the task runs, and the event has its name. (That a missing
heartbeat ends the task is the matter of `callbacks`.)
"""

from typing import Any

from ministack.services import stepfunctions

from testbed.localaws.corrections import _interruptible

_FIELDS = ("TimeoutSeconds", "HeartbeatSeconds")
_TIMED_OUT = ("States.Timeout", "States.HeartbeatTimeout")


def apply() -> None:
    """Evaluate the limits of each task state, and name the event of an exceeded one."""
    _interruptible.install()
    _wrap_execute_task()
    _wrap_add_event()


def _wrap_execute_task() -> None:
    original = stepfunctions._execute_task

    def execute_task(state: dict[str, Any], data: Any, execution: Any, context: Any) -> Any:
        return original(_with_limits(state, data, context), data, execution, context)

    stepfunctions._execute_task = execute_task


def _with_limits(state: dict[str, Any], data: Any, context: Any) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for field in _FIELDS:
        if isinstance(state.get(field), str):
            limits[field] = stepfunctions._jsonata_state_field(
                state, field, "number", data, context
            )
        path = state.get(f"{field}Path")
        if path is not None:
            limits[field] = stepfunctions._resolve_path_or_ctx(path, data, context)
    for field, seconds in limits.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds <= 0:
            text = f"{field} must be a positive integer, but was: {seconds!r}"
            raise stepfunctions._ExecutionError("States.Runtime", text)
    return {**state, **limits}


def _wrap_add_event() -> None:
    original = stepfunctions._add_event

    def add_event(execution: Any, event_type: str, details: Any = None) -> Any:
        failed = (details or {}).get("taskFailedEventDetails", {})
        if event_type == "TaskFailed" and failed.get("error") in _TIMED_OUT:
            return original(execution, "TaskTimedOut", {"taskTimedOutEventDetails": failed})
        return original(execution, event_type, details)

    stepfunctions._add_event = add_event
