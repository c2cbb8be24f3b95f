"""Groundwork of several corrections: executions that end once and can be interrupted.

The emulator keeps an execution as a plain dict and lets any thread write any status into it at
any time; its threads sleep and wait where nothing can wake them. Here an execution owns a scope
(testbed.localaws.scope), keeps its first final status, and everything that waits does so inside a
scope. Nothing ends a scope yet: that is what the corrections built on this do.
"""

import copy
import functools
import threading
from typing import Any

from ministack.core.responses import AccountRegionScopedDict
from ministack.services import stepfunctions

from testbed.localaws import scope

_status_lock = threading.Lock()


class Execution(dict[str, Any]):
    """An execution's record: its status leaves RUNNING exactly once, unless it is restarted.

    Writing another final status raises `Cancelled`, which ends the thread that came second.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(record)
        self.scope = scope.Scope()
        self.run: Any = None  # what `redrive` remembers

    def restart(self) -> None:
        """Be RUNNING again, in a scope of its own."""
        with _status_lock:
            self.scope = scope.Scope()
            super().__setitem__("status", "RUNNING")

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "status":
            super().__setitem__(key, value)
            return
        scope.check()  # of a run that was ended before this one began
        with _status_lock:
            if self.get("status", "RUNNING") != "RUNNING":
                raise scope.Cancelled
            super().__setitem__(key, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)


class Executions(AccountRegionScopedDict):  # type: ignore[misc] # ministack has no types
    """All executions, each as an Execution."""

    def __setitem__(self, key: str, value: dict[str, Any]) -> None:
        super().__setitem__(key, value if isinstance(value, Execution) else Execution(value))


@functools.cache
def install() -> None:
    """Make executions interruptible; once, whichever correction asks first."""
    stepfunctions._executions = Executions()
    stepfunctions._scaled_sleep = lambda seconds: scope.sleep(
        seconds * stepfunctions._SFN_WAIT_SCALE
    )
    _wrap_run_execution()
    _wrap_add_event()
    _wrap_invocations()
    _silence_cancelled_threads()


def _wrap_run_execution() -> None:
    original = stepfunctions._run_execution

    def run_execution(execution_arn: str) -> None:
        execution = stepfunctions._executions.get(execution_arn)
        if execution is None:
            return
        token = scope.current.set(execution.scope)
        try:
            original(execution_arn)
        except scope.Cancelled:
            pass  # the end has been recorded by its cause
        finally:
            scope.current.reset(token)

    stepfunctions._run_execution = run_execution


def _wrap_add_event() -> None:
    original = stepfunctions._add_event

    def add_event(execution: dict[str, Any], event_type: str, details: Any = None) -> Any:
        scope.check()
        return original(execution, event_type, details)

    stepfunctions._add_event = add_event


def _wrap_invocations() -> None:
    invoke, invoke_with_callback = (
        stepfunctions._invoke_resource,
        stepfunctions._invoke_with_callback,
    )

    def invoke_with_timeout(resource: str, data: Any, seconds: float) -> Any:
        try:
            return scope.run(invoke, resource, data, seconds=seconds)
        except TimeoutError:
            raise stepfunctions._ExecutionError("States.Timeout", "") from None

    stepfunctions._invoke_resource = functools.partial(scope.run, invoke)
    stepfunctions._invoke_with_callback = functools.partial(scope.run, invoke_with_callback)
    stepfunctions._invoke_resource_with_timeout = invoke_with_timeout


def _silence_cancelled_threads() -> None:
    report = threading.excepthook

    def excepthook(arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, scope.Cancelled):
            report(arguments)

    threading.excepthook = excepthook
