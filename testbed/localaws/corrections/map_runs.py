"""The children of a distributed Map are executions of their own; a Map Run that fails stops them.

AWS (developer guide, "Using Map state in Distributed mode" and "Redriving Map Runs"; API reference,
MapRunExecutionCounts and DescribeExecution): each item runs in a child execution with an ARN, a
context object and variables of its own, of the type that ProcessorConfig names. As soon as more
items have failed than are tolerated, the Map Run fails, no further child starts, and Step Functions
aborts those that run, as it does when the parent is stopped. DescribeExecution knows the children,
also those of type EXPRESS. Who redrives the parent redrives the unsuccessful children, under their
ARNs. The fields of a JSONata Map may be expressions.

Emulator: the children see the context object of their parent and share its variables, and none is
ever aborted: a Map Run fails when its last child has ended. They are all STANDARD and send no
status events. JSONata fields are ignored, and a redrive starts another Map Run.

This: does as AWS does. AWS does not document whether children of type STANDARD send status events;
here they do, because all Standard executions do.
"""

import contextlib
import contextvars
import copy
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from ministack.core.responses import new_uuid, now_iso
from ministack.services import stepfunctions

from testbed.localaws import scope
from testbed.localaws.corrections import _interruptible, _progress, history, redrive

MOST_CHILDREN = 64
_COUNTS = ("pending", "running", "succeeded", "failed", "timedOut", "aborted", "total")
_MORE_COUNTS = ("resultsWritten", "failuresNotRedrivable", "pendingRedrive")


def apply() -> None:
    """Run distributed Maps here."""
    _interruptible.install()
    stepfunctions._run_distributed_map = run_distributed_map


def run_distributed_map(  # noqa: PLR0917 - called by the emulator
    state: dict[str, Any], data: Any, effective: Any, processor: Any, execution: Any, context: Any
) -> Any:
    """One attempt of the state: a new Map Run, or the one that the redrive goes on with."""
    fields = _Fields(state, data, effective, context)
    map_run = _redriven(state, execution)
    if map_run is None:
        map_run = _MapRun(fields, processor, execution, context)
    results = map_run.run(fields)
    if fields.is_jsonata:
        output = stepfunctions._apply_jsonata_output(
            state, data, context, result=results, default=results
        )
        stepfunctions._apply_state_assign(state, data, context, result=results)
    else:
        result = stepfunctions._apply_result_selector(state, results)
        output = stepfunctions._apply_result_path(state, data, result)
        output = stepfunctions._apply_output_path(state, output, context)
    return output, stepfunctions._next_or_end(state)


class _Fields:
    """The fields of a Map state, in whichever query language."""

    def __init__(self, state: dict[str, Any], data: Any, effective: Any, context: Any) -> None:
        self.state, self._data, self._effective, self._context = state, data, effective, context
        self.is_jsonata = stepfunctions._state_query_language(state, context) == "JSONata"

    def number(self, name: str) -> float | None:
        """A number, a path or an expression; None if the state has no such field."""
        if self.is_jsonata and name in self.state:
            return float(
                stepfunctions._jsonata_state_field(
                    self.state, name, "number", self._data, self._context
                )
            )
        if f"{name}Path" in self.state:
            path = self.state[f"{name}Path"]
            return float(stepfunctions._resolve_path_or_ctx(path, self._effective, self._context))
        return float(self.state[name]) if name in self.state else None

    def inputs(self) -> list[Any]:
        """The input of each child."""
        return [self._input(number, item) for number, item in enumerate(self._items())]

    def _items(self) -> list[Any]:
        if self.state.get("ItemReader"):
            reader = self.state["ItemReader"]
            return list(stepfunctions._read_map_items(reader, self._effective, self._context))
        if self.is_jsonata and "Items" in self.state:
            items = stepfunctions._jsonata_state_field(
                self.state, "Items", "array", self._data, self._context
            )
        else:
            path = self.state.get("ItemsPath", "$")
            items = stepfunctions._resolve_path_or_ctx(path, self._effective, self._context)
        return items if isinstance(items, list) else [items]

    def _input(self, number: int, item: Any) -> Any:
        selector = self.state.get("ItemSelector") or self.state.get("Parameters")
        if not selector:
            return item
        context = {**self._context, "Map": {"Item": {"Index": number, "Value": item}}}
        if self.is_jsonata:
            return stepfunctions._apply_jsonata_template(selector, self._data, context)
        return stepfunctions._resolve_params_obj(selector, self._effective, context)


class _MapRun:
    """A Map Run; its record is what DescribeMapRun shows."""

    def __init__(
        self, fields: _Fields, processor: dict[str, Any], execution: Any, context: Any
    ) -> None:
        self.parent, self.processor = execution, processor
        self.language = processor.get("QueryLanguage", context["QueryLanguage"])
        self.is_express = processor["ProcessorConfig"].get("ExecutionType") == "EXPRESS"
        label = fields.state.get("Label") or new_uuid()
        self.place, _, machine = execution["stateMachineArn"].partition(":stateMachine:")
        self.name = f"{machine}/{label}"
        self.children = [self._child(each) for each in fields.inputs()]
        self.record: dict[str, Any] = {
            "mapRunArn": f"{self.place}:mapRun:{self.name}:{new_uuid()}",
            "executionArn": execution["executionArn"],
            "startDate": now_iso(),
            "redriveCount": 0,
            "_stateMachineArn": f"{self.place}:stateMachine:{self.name}",
            "_state": fields.state,
            "_run": self,
        }
        stepfunctions._map_runs[self.record["mapRunArn"]] = self.record

    def run(self, fields: _Fields) -> list[Any]:
        """The children's results; or an error as soon as too many have failed."""
        most = int(fields.number("MaxConcurrency") or 0)
        count = fields.number("ToleratedFailureCount")
        percentage = fields.number("ToleratedFailurePercentage")
        limits = [
            *([] if count is None else [count]),
            *([] if percentage is None else [percentage * len(self.children) / 100]),
        ]
        self.tolerated = min(limits, default=0)
        self.record |= {
            "status": "RUNNING",
            "maxConcurrency": most,
            "toleratedFailureCount": int(count or 0),
            "toleratedFailurePercentage": percentage or 0.0,
            "_redrives": self.parent.get("redriveCount", 0),
        }
        self.lock, self.scope = threading.Lock(), scope.Scope(scope.current.get())
        self._count()
        arn = {"mapRunArn": self.record["mapRunArn"]}
        stepfunctions._add_event(self.parent, "MapRunStarted", {"mapRunStartedEventDetails": arn})
        unfinished = [child for child in self.children if child["status"] != "SUCCEEDED"]
        with ThreadPoolExecutor(most or min(len(unfinished), MOST_CHILDREN) or 1) as pool:
            wait(
                pool.submit(contextvars.copy_context().run, self._run_child, child)
                for child in unfinished
            )
        return self._ended()

    def _ended(self) -> list[Any]:
        self.record["stopDate"] = now_iso()
        current = scope.current.get()
        if current is not None and current.over:
            self.record["status"] = "ABORTED"
        scope.check()
        if self._has_failed():
            self.record["status"] = "FAILED"
            text = "The specified tolerated failure threshold was exceeded"
            error = "States.ExceedToleratedFailureThreshold"
            details = {"mapRunFailedEventDetails": {"error": error, "cause": text}}
            stepfunctions._add_event(self.parent, "MapRunFailed", details)
            raise stepfunctions._ExecutionError(error, text)
        self.record["status"] = "SUCCEEDED"
        stepfunctions._add_event(self.parent, "MapRunSucceeded")
        succeeded = [child["status"] == "SUCCEEDED" for child in self.children]
        return [
            json.loads(child["output"]) if fine else _error_of(child)
            for child, fine in zip(self.children, succeeded, strict=True)
        ]

    def _has_failed(self) -> bool:
        counts = self.record["executionCounts"]
        return bool(counts["failed"] + counts["aborted"] > self.tolerated)

    def _count(self) -> None:
        states = [child["status"].lower() for child in self.children]
        counts = {name: states.count(name) for name in (*_COUNTS, *_MORE_COUNTS)}
        counts["total"] = len(states)
        self.record |= {"itemCounts": counts, "executionCounts": counts}

    def _child(self, data: Any) -> "_interruptible.Execution":
        name = new_uuid()
        kind, end = ("express", f":{new_uuid()}") if self.is_express else ("execution", "")
        return _interruptible.Execution(
            {
                "executionArn": f"{self.place}:{kind}:{self.name}:{name}{end}",
                "stateMachineArn": f"{self.place}:stateMachine:{self.name}",
                "name": name,
                "status": "PENDING",
                "input": json.dumps(data),
                "output": None,
                "stopDate": None,
                "events": [],
                "testCase": self.parent.get("testCase"),
                "mockAttempts": {},
                "isExpress": self.is_express,
            }
        )

    def _run_child(self, child: "_interruptible.Execution") -> None:
        with self.lock:
            if self.scope.over:
                return
            self._begin(child)
            self._count()
        tokens = scope.current.set(child.scope), _progress.current.set(child.run.walk)
        try:
            self._walk(child)
        except stepfunctions._ExecutionError as error:
            _unless_it_ended(stepfunctions._fail_execution, child, error.error, error.cause)
        except scope.Cancelled:
            scope.current.set(None)  # the record is written outside of what is over
            _unless_it_ended(_abort, child)
        finally:
            scope.current.reset(tokens[0])
            _progress.current.reset(tokens[1])
            with self.lock:
                self._count()
                if self._has_failed():
                    self.scope.end()

    def _begin(self, child: "_interruptible.Execution") -> None:
        arn = child["executionArn"]
        if child["status"] == "PENDING":
            child.run = redrive.Run("{}")
            child["startDate"], child["mapRunArn"] = now_iso(), self.record["mapRunArn"]
            stepfunctions._executions[arn] = child
        else:
            child.update(
                redriveCount=child.get("redriveCount", 0) + 1,
                redriveDate=now_iso(),
                stopDate=None,
                output=None,
                error=None,
                cause=None,
            )
            if self.is_express:
                child.run = redrive.Run("{}")
            else:
                child.run.walk.redrive()
        child.restart()
        self.scope.adopt(child.scope)
        details = {"executionStartedEventDetails": {"input": child["input"]}}
        stepfunctions._add_event(child, "ExecutionStarted", details)
        stepfunctions._emit_execution_status_event(child)

    def _walk(self, child: "_interruptible.Execution") -> None:
        walk, data = child.run.walk, json.loads(child["input"])
        context = walk.context or {
            "QueryLanguage": self.language,
            "Execution": {
                "Id": child["executionArn"],
                "Input": data,
                "Name": child["name"],
                "StartTime": child["startDate"],
            },
            "StateMachine": {"Id": child["stateMachineArn"], "Name": self.name},
            "variables": {},
        }
        context["Execution"]["RedriveCount"] = child.get("redriveCount", 0)
        walk.begin(context)
        start, data = (walk.state, walk.data) if walk.state else (self.processor["StartAt"], data)
        result = history.run_states(self.processor["States"], start, data, child, context)
        child["status"] = "SUCCEEDED"
        child["output"] = json.dumps(result)
        child["stopDate"] = now_iso()
        details = {"executionSucceededEventDetails": {"output": child["output"]}}
        stepfunctions._add_event(child, "ExecutionSucceeded", details)
        stepfunctions._emit_execution_status_event(child)


def _redriven(state: dict[str, Any], execution: Any) -> _MapRun | None:
    """The Map Run of this state that an earlier run of the execution has left unsuccessful."""
    redrives = execution.get("redriveCount", 0)
    for record in reversed(list(stepfunctions._map_runs.values())):
        if record["executionArn"] == execution["executionArn"] and record["_state"] == state:
            is_earlier = record["_redrives"] < redrives and record["status"] != "SUCCEEDED"
            if not is_earlier:
                return None
            record |= {"redriveCount": record["redriveCount"] + 1, "redriveDate": now_iso()}
            return record["_run"]  # type: ignore[no-any-return]  # the emulator's dict
    return None


def _unless_it_ended(end: Callable[..., None], child: Any, *arguments: Any) -> None:
    """A child may have been stopped in the same moment."""
    with contextlib.suppress(scope.Cancelled):
        end(child, *arguments)


def _abort(child: "_interruptible.Execution") -> None:
    child["status"] = "ABORTED"
    child["stopDate"] = now_iso()
    stepfunctions._add_event(child, "ExecutionAborted", {"executionAbortedEventDetails": {}})
    stepfunctions._emit_execution_status_event(child)


def _error_of(child: dict[str, Any]) -> dict[str, Any]:
    """What is in the result for an item that failed, and was tolerated."""
    return copy.deepcopy({"Error": child.get("error"), "Cause": child.get("cause")})
