"""The Amazon States Language: an execution goes from state to state, as its machine says.

Source: the specification at states-language.net, and "Transforming data with JSONata in Step
Functions", "Handling errors in Step Functions workflows" and "Restarting state machine executions
with redrive" of the Step Functions developer guide. Only what the guard's machines use is here:
Pass, Task (a function, with or without a task token), Choice, Wait, Parallel, inline Map, Fail and
Succeed, all in JSONata.

A `Flow` is one thread of an execution: the whole, a branch or an iteration. No code of ours waits
in it, so it needs no greenlet: it is called when something has happened.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from jsonata.jsonata import Jsonata  # type: ignore[import-untyped]  # it ships no types

from tests.simulation.engine import Engine
from tests.simulation.functions import Json, Outcome

_NOT_IN_ALL: Final = ("States.DataLimitExceeded", "States.Runtime")
_DISPATCH_SECONDS: Final = 0.015


# The JSONata of the guard's states, as the package `jsonata-python` evaluates it.
#
# Each expression is parsed once. Step Functions has more functions than the language (`$parse`),
# and its own `$uuid` and `$millis`, which come with the variables.


class EvaluationError(Exception):
    """Step Functions fails the state with States.QueryEvaluationError."""


@cache
def _parsed(text: str) -> Jsonata:
    """Within an object: it tells null from nothing, as a field that leads nowhere is left out."""
    expression = Jsonata(f'{{"value": ({text})}}')
    expression.register_lambda("parse", json.loads)
    return expression


def _value(text: str, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    bound = {
        name.removeprefix("$"): Jsonata.JLambda(value) if callable(value) else value
        for name, value in values.items()
    }
    try:
        found: dict[str, Any] = _parsed(text).evaluate(None, bound)
    except Exception as error:
        raise EvaluationError(str(error)) from error
    if not found:
        message = f"{text} returned nothing"
        raise EvaluationError(message)
    return found["value"]


def evaluate(template: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """A field of a state: its expressions replaced by their values.

    Raises:
        EvaluationError: an expression fails, or leads nowhere.
    """
    if isinstance(template, str):
        if not (template.startswith("{%") and template.endswith("%}")):
            return template
        return _value(template[2:-2], values)
    if isinstance(template, dict):
        return {name: evaluate(part, values) for name, part in template.items()}
    if isinstance(template, list):
        return [evaluate(part, values) for part in template]
    return template


@dataclass(eq=False)
class Execution:
    """One execution of a machine.

    Attributes:
        service: the `StepFunctions` that runs it.
        watcher: is told what it does, as a `GuardWatcher`.
        status: as DescribeExecution says it.
        stopped_at: when it ended last, in seconds of AWS's time.
    """

    service: Any
    arn: str
    machine: Json
    watcher: Any
    status: str = "RUNNING"
    redrives: int = 0
    stopped_at: float | None = None

    def __post_init__(self) -> None:
        self.engine: Engine = self.service.engine
        self.context: Json = {"Execution": {"Id": self.arn, "RedriveCount": 0}}
        self.root = Flow(self, self.machine, None, {})

    def end(self, status: str, error: str = "") -> None:
        """It is over; Step Functions tells EventBridge."""
        if self.status != "RUNNING":
            return
        self.status, self.stopped_at = status, self.engine.now
        self.root.stop()
        self.watcher.ended(self, status, error)
        self.service.report(self)

    def redrive(self) -> bool:
        """Starts it again where it was interrupted; False if there is nothing to redrive."""
        if self.status in {"RUNNING", "SUCCEEDED"}:
            return False
        self.status, self.stopped_at = "RUNNING", None
        self.redrives += 1
        at = datetime.fromtimestamp(self.engine.now, UTC).isoformat(timespec="milliseconds")
        told = {"Id": self.arn, "RedriveCount": self.redrives, "RedriveTime": at}
        self.context = {"Execution": told}
        self.root.resume()
        return True


class Flow:
    """One thread of an execution.

    Attributes:
        scope: the machine, or the part of it, whose states it goes through.
        name: the state that it is in.
        input: of that state.
        number: changes whenever what it has waited for is out of date.
        children: the branches or iterations of the state that it is in.
    """

    def __init__(
        self, execution: Execution, scope: Json, parent: Flow | None, variables: Json
    ) -> None:
        self.execution, self.scope, self.parent = execution, scope, parent
        self.variables = variables
        self.name = ""
        self.input: Any = None
        self.number = 0
        self.children: list[Flow] = []
        self.is_over = False
        self.output: Any = None
        self._retried: Counter[int] = Counter()

    @property
    def state(self) -> Json:
        found: Json = self.scope["States"][self.name]
        return found

    def begin(self, given: Any) -> None:  # noqa: ANN401 - any JSON
        self._enter(self.scope["StartAt"], given)

    def stop(self) -> None:
        """Nothing that is under way has any effect any more."""
        self.number += 1
        for child in self.children:
            child.stop()
            self.execution.watcher.stopped(child)

    def resume(self) -> None:
        """Goes on after a redrive: enters the state again that was interrupted."""
        unfinished = [child for child in self.children if not child.is_over]
        for child in unfinished:
            child.resume()
        if not unfinished and not self.is_over:
            self._attempt()

    def later(self, seconds: float, happens: Callable[..., object], *args: object) -> None:
        """Lets something happen, unless that is out of date then."""
        self.execution.engine.after(seconds, self._if_current, self.number, happens, args)

    def _if_current(self, number: int, happens: Callable[..., object], args: Sequence[Any]) -> None:
        if number == self.number:
            happens(*args)

    def _enter(self, name: str, given: Any) -> None:  # noqa: ANN401 - any JSON
        self.name, self.input = name, given
        self.children = []
        self._retried.clear()
        self._attempt()

    def _attempt(self) -> None:
        self.number += 1
        self.later(self.execution.service.transition(), self._do)

    def _do(self) -> None:
        state = self.state
        try:
            getattr(self, f"_{state['Type'].lower()}")(state)
        except EvaluationError as error:
            self.fail("States.QueryEvaluationError", str(error))

    def _values(self, **more: Any) -> Json:  # noqa: ANN401 - any JSON
        context = self.execution.context
        if "token" in more:
            context = {**context, "Task": {"Token": more.pop("token")}}
        states = {"input": self.input, "context": context, **more}
        return {**self.execution.service.built_in, **self.variables, "$states": states}

    def _pass(self, _state: Json) -> None:
        self.complete(self.input)

    def _succeed(self, _state: Json) -> None:
        self._end(self.input)

    def _fail(self, state: Json) -> None:
        values = self._values()
        self._lost(evaluate(state["Error"], values), evaluate(state.get("Cause", ""), values))

    def _choice(self, state: Json) -> None:
        values = self._values()
        for rule in state["Choices"]:
            if evaluate(rule["Condition"], values):
                self._go(rule, values, self.input)
                return
        self._go({**state, "Next": state["Default"]}, values, self.input)

    def _wait(self, state: Json) -> None:
        seconds = float(evaluate(state["Seconds"], self._values()))
        self.later(seconds, self.complete, self.input)

    def _parallel(self, state: Json) -> None:
        self.children = [
            Flow(self.execution, branch, self, dict(self.variables)) for branch in state["Branches"]
        ]
        for child in self.children:
            child.begin(self.input)

    def _map(self, state: Json) -> None:
        items = evaluate(state["Items"], self._values())
        body = state["ItemProcessor"]
        self.children = [Flow(self.execution, body, self, dict(self.variables)) for _ in items]
        for child, item in zip(self.children, items, strict=True):
            child.begin(item)
        if not items:
            self.complete([])

    def _task(self, state: Json) -> None:
        execution, number = self.execution, self.number
        sleeps = state["Resource"].endswith(".waitForTaskToken")
        values = self._values(token=execution.service.token(self)) if sleeps else self._values()
        arguments = evaluate(state["Arguments"], values)
        function, payload = arguments["FunctionName"].rpartition(":")[2], arguments["Payload"]
        execution.watcher.calls(self, function, payload)

        def done(outcome: Outcome) -> None:
            if number != self.number:
                return
            execution.watcher.answers(self, function, outcome)
            if outcome.error:
                self.fail(outcome.error, outcome.cause)
            elif not sleeps:
                self.complete({"Payload": outcome.answer, "StatusCode": 200})

        execution.engine.after(
            _DISPATCH_SECONDS, execution.service.functions, function, payload, done
        )
        if "TimeoutSeconds" in state:
            timeout = state["TimeoutSeconds"]
            self.later(timeout, self.fail, "States.Timeout", f"{timeout} s are over")

    def complete(self, result: Any) -> None:  # noqa: ANN401 - any JSON
        state = self.state
        try:
            values = self._values(result=result)
            output = evaluate(state["Output"], values) if "Output" in state else result
            assigned = evaluate(state.get("Assign", {}), values)
        except EvaluationError as error:
            self.fail("States.QueryEvaluationError", str(error))
            return
        self.number += 1
        self._assign(assigned)
        self.execution.watcher.completes(result)
        if state.get("End"):
            self._end(output)
        else:
            self._enter(state["Next"], output)

    def fail(self, error: str, cause: str) -> None:
        """Repeats the state, goes to where its error is caught, or fails."""
        state = self.state
        self.stop()
        self.execution.watcher.raises(self, error)
        for number, rule in enumerate(state.get("Retry", ())):
            if not _matches(rule, error):
                continue
            if self._retried[number] >= rule.get("MaxAttempts", 3):
                break
            pause = _pause(rule, self._retried[number])
            if rule.get("JitterStrategy") == "FULL":
                pause *= self.execution.engine.random.random()
            self._retried[number] += 1
            self.later(pause, self._attempt)
            return
        for rule in state.get("Catch", ()):
            if _matches(rule, error):
                told = {"Error": error, "Cause": cause}
                self._go(rule, self._values(errorOutput=told), told)
                return
        self._lost(error, cause)

    def _go(self, rule: Json, values: Json, default: Any) -> None:  # noqa: ANN401 - any JSON
        """Follows a rule of a Choice or a Catch."""
        output = evaluate(rule["Output"], values) if "Output" in rule else default
        assigned = evaluate(rule.get("Assign", {}), values)
        self._assign(assigned)
        self._enter(rule["Next"], output)

    def _assign(self, assigned: Json) -> None:
        for name, value in assigned.items():
            self.variables[f"${name}"] = value

    def _end(self, output: Any) -> None:  # noqa: ANN401 - any JSON
        self.is_over, self.output = True, output
        parent = self.parent
        if parent is None:
            self.execution.end("SUCCEEDED")
        elif all(child.is_over for child in parent.children):
            parent.complete([child.output for child in parent.children])

    def _lost(self, error: str, cause: str) -> None:
        """This thread has failed, and so has the state of which it is a branch."""
        self.number += 1
        if self.parent is None:
            self.execution.end("FAILED", error)
        else:
            self.parent.fail(error, cause)


def _matches(rule: Json, error: str) -> bool:
    for name in rule["ErrorEquals"]:
        if name == error or (name == "States.ALL" and error not in _NOT_IN_ALL):
            return True
        if name == "States.TaskFailed" and error not in {"States.Timeout", *_NOT_IN_ALL}:
            return True
    return False


def _pause(rule: Json, repeats: int) -> float:
    longest = rule.get("MaxDelaySeconds", float("inf"))
    return float(
        min(rule.get("IntervalSeconds", 1) * rule.get("BackoffRate", 2) ** repeats, longest)
    )
