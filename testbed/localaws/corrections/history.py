"""The history shows what happened inside branches, and which event led to which.

AWS: every state writes <Type>StateEntered and <Type>StateExited, in branches and iterations as
well (API reference, HistoryEvent); Parallel and Map write ...StateStarted before and
...StateSucceeded or ...StateFailed after their branches; each event names its predecessor. The
number of state transitions, which is what AWS bills, is the number of ...StateEntered events.

Emulator: branches leave no state events, and no event names its predecessor.

This: runs branches with a walk of its own that writes the events. Predecessors are the events
before in the list, also where branches run side by side.
"""

import json
import threading
from collections.abc import Callable
from typing import Any

from ministack.core.responses import now_iso
from ministack.services import stepfunctions

_event_lock = threading.Lock()
_WITHOUT_EXECUTION = ("Pass", "Choice", "Wait")


def apply() -> None:
    """Write the missing events."""
    _wrap_add_event()
    stepfunctions._run_sub_machine = run_states
    stepfunctions._execute_parallel = _with_attempt_events("Parallel", "_run_parallel_branches")
    stepfunctions._execute_map = _with_attempt_events("Map", "_run_map_items")


def _wrap_add_event() -> None:
    original = stepfunctions._add_event

    def add_event(execution: Any, event_type: str, details: Any = None) -> Any:
        with _event_lock:  # branches write at once, and an id is a position in the list
            event = original(execution, event_type, details)
        event["previousEventId"] = event["id"] - 1
        return event

    stepfunctions._add_event = add_event


def _with_attempt_events(state_type: str, name: str) -> Callable[..., Any]:
    """A handler of Parallel or Map; `name` is the emulator's function for one attempt."""

    def execute(state: Any, data: Any, execution: Any, context: Any) -> Any:
        def attempt() -> Any:
            stepfunctions._add_event(execution, f"{state_type}StateStarted")
            try:
                left = getattr(stepfunctions, name)(state, data, execution, context)
            except stepfunctions._ExecutionError:
                stepfunctions._add_event(execution, f"{state_type}StateFailed")
                raise
            stepfunctions._add_event(execution, f"{state_type}StateSucceeded")
            return left

        return stepfunctions._with_retry_and_catch(state, data, context, attempt)

    return execute


def run_states(states: Any, start: Any, data: Any, execution: Any, context: Any) -> Any:
    """Walk from the state `start` to the end, writing events; answers the last output."""
    name, value = start, json.loads(json.dumps(data))
    while name:
        state = states.get(name)
        if state is None:
            raise stepfunctions._ExecutionError("States.Runtime", f"State '{name}' not found")
        context["State"] = {"Name": name, "EnteredTime": now_iso(), "RetryCount": 0}
        entered = {"name": name, "input": json.dumps(value)}
        stepfunctions._add_event(
            execution, f"{state['Type']}StateEntered", {"stateEnteredEventDetails": entered}
        )
        value, following = _run_state(state, value, execution, context)
        exited = {"name": name, "output": json.dumps(value)}
        stepfunctions._add_event(
            execution, f"{state['Type']}StateExited", {"stateExitedEventDetails": exited}
        )
        name = following
    return value


def _run_state(state: Any, data: Any, execution: Any, context: Any) -> Any:
    state_type = state["Type"]
    if state_type == "Succeed":
        effective = stepfunctions._apply_input_path(state, data, context)
        return stepfunctions._apply_output_path(state, effective, context), None
    if state_type == "Fail":
        error, cause = stepfunctions._fail_state_error(state, data, context)
        raise stepfunctions._ExecutionError(error, cause)
    handler = getattr(stepfunctions, f"_execute_{state_type.lower()}")
    if state_type in _WITHOUT_EXECUTION:
        return handler(state, data, context)
    return handler(state, data, execution, context)
