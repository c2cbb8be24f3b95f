"""RedriveExecution: an execution goes on where it failed, was stopped or timed out.

AWS (API reference, RedriveExecution; developer guide, "Restarting state machine executions with
redrive"): an unsuccessful Standard execution continues under its ARN at the states it did not
leave, with their input, the variables as they were and the definition it began with; of Parallel
and inline Map only the branches and iterations that did not succeed; retries count from zero,
TimeoutSeconds begins again. redriveCount and redriveDate appear in DescribeExecution and the status
events, RedriveCount and RedriveTime in the context object.

Emulator: has no such operation, and knows redriveCount only as the 0 of its events.

This: the operation. The children of a distributed Map go on with their parent, and refuse it
themselves: `map_runs`.
"""

import contextvars
import json
import threading
from typing import Any

from ministack.core.concurrency import run_reentrant
from ministack.core.responses import error_response_json, json_response, now_iso
from ministack.services import eventbridge, stepfunctions

from testbed.localaws.corrections import _interruptible, _progress, history

_SOURCES = ("FAILED", "ABORTED", "TIMED_OUT")
_LEAVE_SECONDS = 5.0


class Run:
    """What an execution needs to be redriven."""

    def __init__(self, definition: str) -> None:
        self.definition = definition
        self.walk = _progress.Walk()
        self.is_over = threading.Event()
        self.client_token: str | None = None


def apply() -> None:
    """Add the operation, and show what it did."""
    _progress.install()
    _wrap_run_execution()
    _interruptible.install()
    _wrap_handle_request()
    _wrap_describe_execution()
    _wrap_put_events()


def _wrap_run_execution() -> None:
    original = stepfunctions._run_execution

    def run_execution(execution_arn: str) -> None:
        execution = stepfunctions._executions[execution_arn]
        if execution.run is None:
            machine = stepfunctions._state_machines.get(execution["stateMachineArn"]) or {}
            execution.run = Run(machine.get("definition", "{}"))
        run: Run = execution.run
        token = _progress.current.set(run.walk)
        try:
            if run.walk.context is None:
                original(execution_arn)
            else:
                _go_on(execution)
        finally:
            _progress.current.reset(token)
            run.is_over.set()

    stepfunctions._run_execution = run_execution


def _go_on(execution: "_interruptible.Execution") -> None:
    """Like the emulator's way from the first state to the end, but from the state it was in."""
    walk = execution.run.walk
    walk.context["Execution"] |= {
        "RedriveCount": execution["redriveCount"],
        "RedriveTime": execution["redriveDate"],
    }
    walk.begin(walk.context)
    states = json.loads(execution.run.definition)["States"]
    try:
        result = history.run_states(states, walk.state, walk.data, execution, walk.context)
    except stepfunctions._ExecutionError as error:
        stepfunctions._fail_execution(execution, error.error, error.cause)
        return
    execution["status"] = "SUCCEEDED"
    execution["output"] = json.dumps(result)
    execution["stopDate"] = now_iso()
    details = {"output": execution["output"]}
    stepfunctions._add_event(
        execution, "ExecutionSucceeded", {"executionSucceededEventDetails": details}
    )
    stepfunctions._emit_execution_status_event(execution)


def _wrap_handle_request() -> None:
    original = stepfunctions.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: Any, query: Any) -> Any:
        if not headers.get("x-amz-target", "").endswith(".RedriveExecution"):
            return await original(method, path, headers, body, query)
        # It waits for the end of the last run, which needs the event loop.
        return stepfunctions._finalize_response(await run_reentrant(_redrive, json.loads(body)))

    stepfunctions.handle_request = handle_request


def _redrive(request: dict[str, Any]) -> Any:
    arn = request["executionArn"]
    execution = stepfunctions._executions.get(arn)
    if execution is None:
        text = f"Execution Does Not Exist: '{arn}'"
        return error_response_json("ExecutionDoesNotExist", text, 400)
    token = request.get("clientToken")
    if token is not None and execution.run is not None and execution.run.client_token == token:
        return json_response({"redriveDate": execution["redriveDate"]})
    if "mapRunArn" in execution:
        text = "Redrive the parent execution of the Map Run"
        return error_response_json("ExecutionNotRedrivable", text, 400)
    if _status_of(execution)["redriveStatus"] != "REDRIVABLE":
        text = _status_of(execution)["redriveStatusReason"]
        return error_response_json("ExecutionNotRedrivable", text, 400)
    run: Run = execution.run
    run.is_over.wait(_LEAVE_SECONDS)
    run.is_over.clear()
    run.client_token = token
    run.walk.redrive()
    _start_again(execution)
    return json_response({"redriveDate": execution["redriveDate"]})


def _start_again(execution: "_interruptible.Execution") -> None:
    execution.update(
        redriveCount=execution.get("redriveCount", 0) + 1,
        redriveDate=now_iso(),
        stopDate=None,
        output=None,
        error=None,
        cause=None,
    )
    execution.restart()
    details = {"redriveCount": execution["redriveCount"]}
    stepfunctions._add_event(
        execution, "ExecutionRedriven", {"executionRedrivenEventDetails": details}
    )
    stepfunctions._emit_execution_status_event(execution)
    threading.Thread(
        target=contextvars.copy_context().run,
        args=(stepfunctions._run_execution, execution["executionArn"]),
        daemon=True,
    ).start()


def _status_of(execution: dict[str, Any]) -> dict[str, Any]:
    """The fields of DescribeExecution and of the status event that are about redriving."""
    machine = stepfunctions._state_machines.get(execution["stateMachineArn"]) or {}
    can_be = machine.get("type") != "EXPRESS" and execution["status"] in _SOURCES
    end = "is redrivable" if can_be else "cannot be redriven"
    return {
        "redriveCount": execution.get("redriveCount", 0),
        "redriveDate": execution.get("redriveDate"),
        "redriveStatus": "REDRIVABLE" if can_be else "NOT_REDRIVABLE",
        "redriveStatusReason": f"Execution is {execution['status']} and {end}",
    }


def _wrap_describe_execution() -> None:
    original = stepfunctions._describe_execution

    def describe(request: dict[str, Any]) -> Any:
        status, headers, body = original(request)
        answer = json.loads(body)
        execution = stepfunctions._executions.get(answer.get("executionArn"))
        if execution is None:
            return status, headers, body
        fields = {name: value for name, value in _status_of(execution).items() if value is not None}
        return json_response({**answer, **fields}, status)

    stepfunctions._describe_execution = describe


def _wrap_put_events() -> None:
    original = eventbridge._put_events

    def put_events(request: dict[str, Any], allow_aws_source: bool = False) -> Any:  # noqa: FBT001, FBT002
        if allow_aws_source:
            for entry in request["Entries"]:
                _correct_status_event(entry)
        return original(request, allow_aws_source)

    eventbridge._put_events = put_events


def _correct_status_event(entry: dict[str, Any]) -> None:
    if entry.get("Source") != "aws.states":
        return
    detail = json.loads(entry["Detail"])
    execution = stepfunctions._executions.get(detail.get("executionArn"))
    if execution is not None:
        fields = _status_of(execution)
        fields["redriveDate"] = stepfunctions._iso_to_epoch_ms(fields["redriveDate"])
        entry["Detail"] = json.dumps({**detail, **fields})
