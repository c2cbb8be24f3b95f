"""A durable context over recorded operations: one move performs one operation, or suspends.

The code under search is `fairlock.durable` itself. It runs from its start each time, as a replay
does, with what is recorded; so a kill between two operations changes nothing, and only a kill
between the effect of an operation and its record is a move of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

from aws_durable_execution_sdk_python import CallbackTimeoutError
from aws_durable_execution_sdk_python.config import StepSemantics
from aws_durable_execution_sdk_python.exceptions import SuspendExecution


class Recorded(NamedTuple):
    """One operation of an execution.

    Attributes:
        status: "done", "started", "interrupted" or "timed out".
        result: what it gave, as JSON.
        attempts: how often it was interrupted.
    """

    status: str
    result: str = "null"
    attempts: int = 0


Log = tuple[tuple[str, Recorded], ...]
"""The operations of an execution by their names, in the order in which they began."""


class NoOperations:
    """The part of the SDK's state by which `hold` finds the contexts around it: there are none."""

    operations: ClassVar[dict[str, Any]] = {}


class Stopped(BaseException):
    """The move is over: the next operation is another one."""


@dataclass(eq=False)
class RecordedContext:
    """Replaces a `DurableContext`.

    Attributes:
        arn: of the execution.
        log: what is recorded.
        left: how many operations may still be performed.
        dies: whether the function is killed before what it performs is recorded.
        again: how many callbacks were made again; only a mutant does.
    """

    arn: str
    log: dict[str, Recorded]
    left: int = 1
    dies: bool = False
    again: int = 0
    performed: list[str] = field(default_factory=list)
    state: Any = field(default_factory=NoOperations)
    _step_id_prefix: None = None
    _parent_id: None = None

    @property
    def execution_context(self) -> SimpleNamespace:
        return SimpleNamespace(durable_execution_arn=self.arn)

    @property
    def logger(self) -> SimpleNamespace:
        return SimpleNamespace(warning=lambda *_: None)

    def step(self, func: Callable[[Any], Any], name: str, config: Any = None) -> Any:  # noqa: ANN401 - the SDK's
        known = self.log.get(name, Recorded("new"))
        if known.status == "done":
            return json.loads(known.result)
        self._perform(name)
        result = json.dumps(func(SimpleNamespace(attempt=known.attempts + 1)))
        if self.dies:
            if config is not None and config.step_semantics is StepSemantics.AT_MOST_ONCE_PER_RETRY:
                self.log[name] = Recorded("interrupted", attempts=known.attempts + 1)
            raise Stopped
        self.log[name] = Recorded("done", result)
        return json.loads(result)

    def wait(self, name: str) -> None:
        if name not in self.log:
            self._perform(name)
            self.log[name] = Recorded("started")
        if self.log[name].status == "started":
            raise SuspendExecution(name)

    def create_callback(self, name: str, config: Any) -> SimpleNamespace:  # noqa: ANN401, ARG002 - the SDK's
        if name not in self.log:
            self._perform(name)
            self.log[name] = Recorded("started")
        return SimpleNamespace(
            callback_id=callback_id(self.arn, name), result=lambda: self._result(name)
        )

    def _result(self, name: str) -> Any:  # noqa: ANN401 - same
        known = self.log[name]
        if known.status == "timed out":
            raise CallbackTimeoutError(message="timed out")
        if known.status == "started":
            raise SuspendExecution(name)
        return json.loads(known.result)

    def _perform(self, name: str) -> None:
        if self.left == 0:
            raise Stopped
        self.left -= 1
        self.performed.append(name)


def callback_id(arn: str, name: str) -> str:
    """Tells the callbacks of all executions apart."""
    return f"{arn}|{name}"
