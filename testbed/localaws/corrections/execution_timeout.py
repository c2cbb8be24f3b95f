"""An execution that outlasts its TimeoutSeconds ends TIMED_OUT.

AWS: the state machine's top-level TimeoutSeconds bounds the execution (developer guide, "State
machine structure in Amazon States Language"); Express executions end after five minutes in any
case ("Step Functions service quotas"). The status becomes TIMED_OUT, the history ends with
ExecutionTimedOut, and the status change event is sent.

Emulator: the field is ignored; TIMED_OUT never happens.

This: a timer per execution ends its scope and writes the status, unless it ended before.
"""

import contextvars
import json
import threading
from typing import Any

from ministack.core.responses import now_iso
from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _interruptible

EXPRESS_LIMIT_SECONDS = 300


def apply() -> None:
    """Give every execution a timer if its state machine sets a limit."""
    _interruptible.install()
    original = stepfunctions._run_execution

    def run_execution(execution_arn: str) -> None:
        execution = stepfunctions._executions.get(execution_arn)
        seconds = None if execution is None else _limit_seconds(execution)
        if seconds is None:
            original(execution_arn)
            return
        # The timer reads the account and region of the request from the copied context.
        context = contextvars.copy_context()
        timer = threading.Timer(seconds, context.run, (_expire, execution, execution.scope))
        timer.daemon = True
        timer.start()
        try:
            original(execution_arn)
        finally:
            timer.cancel()

    stepfunctions._run_execution = run_execution


def _limit_seconds(execution: dict[str, Any]) -> float | None:
    machine = stepfunctions._state_machines.get(execution["stateMachineArn"])
    if machine is None:
        return None
    try:
        limit: float | None = json.loads(machine["definition"]).get("TimeoutSeconds")
    except json.JSONDecodeError:
        return None
    if machine.get("type") == "EXPRESS":
        return min(limit or EXPRESS_LIMIT_SECONDS, EXPRESS_LIMIT_SECONDS)
    return limit


def _expire(execution: "_interruptible.Execution", limited: scope.Scope) -> None:
    if limited.over:  # a run that was stopped; another one may be under way
        return
    try:
        execution["status"] = "TIMED_OUT"
    except scope.Cancelled:  # it ended in this very moment
        return
    execution["stopDate"] = now_iso()
    stepfunctions._add_event(execution, "ExecutionTimedOut", {"executionTimedOutEventDetails": {}})
    execution.scope.end()
    stepfunctions._emit_execution_status_event(execution)
