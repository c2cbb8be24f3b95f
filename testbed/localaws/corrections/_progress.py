"""Groundwork of redrive: how far an execution has come, down to the states inside its branches.

The emulator walks the states of an execution, and of each of its branches and iterations, in local
variables that are gone when the execution ends. Here every walk writes down which state it is in,
with which input and variables; and a walk that is redriven begins with what is written.
"""

import contextvars
import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from ministack.services import stepfunctions

_HANDLERS = ("pass", "task", "choice", "wait", "parallel", "map")

current: contextvars.ContextVar["Walk | None"] = contextvars.ContextVar("walk", default=None)


class Walk:
    """One way through states: that of an execution, of a branch or of an iteration."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.data: Any = None
        self.context: dict[str, Any] | None = None
        self.finished = False
        self.result: Any = None
        # Walks inside the state that is running, by number of the branch or iteration.
        self.inner: dict[int, Walk] = {}
        self._variables: dict[str, Any] = {}
        self._branches: Sequence[Any] = ()
        self._to_redrive: dict[int, Walk] | None = None
        self._enters_again = False

    def enter(self, state: str, data: Any) -> bool:
        """Note that a state is entered; False if that was noted before the redrive."""
        if self._enters_again:
            self._enters_again = False
            return False
        self.state, self.data, self.inner, self._to_redrive = state, data, {}, None
        self._variables = dict((self.context or {}).get("variables", {}))
        return True

    def attempt(self, branches: Sequence[Any]) -> None:
        """Note that the branches or iterations of the state begin, again if it is a retry."""
        self._branches = [branch.get("States") for branch in branches]
        self.inner, self._to_redrive = self._to_redrive or {}, None

    def walk_of(self, states: Any, context: dict[str, Any]) -> "Walk":
        """The walk inside of this one that runs these states."""
        numbers = [number for number, own in enumerate(self._branches) if own is states]
        number = numbers[0] if numbers else context["Map"]["Item"]["Index"]
        return self.inner.setdefault(number, Walk())

    def redrive(self) -> None:
        """Have this walk, and the unfinished ones inside of it, begin where they were."""
        # It may have been redriven before, and stopped before its branches began again.
        unfinished = self.inner if self._to_redrive is None else self._to_redrive
        for walk in unfinished.values():
            if not walk.finished:
                walk.redrive()
        self._to_redrive, self._enters_again = unfinished, self.state is not None

    def begin(self, context: dict[str, Any]) -> None:
        """Take the context object of the walk, and give it the variables as they were."""
        self.context = context
        if self._enters_again:
            context["variables"].clear()
            context["variables"].update(copy.deepcopy(self._variables))


def install() -> None:
    """Have all walks write down where they are."""
    _wrap_add_event()
    _wrap_run_sub_machine()
    for name in _HANDLERS:
        _note_context(f"_execute_{name}")
    _note_attempts("_run_parallel_branches", lambda state: state.get("Branches", []))
    _note_attempts("_run_map_items", lambda _: [])


def _wrap_add_event() -> None:
    original = stepfunctions._add_event

    def add_event(execution: Any, event_type: str, details: Any = None) -> Any:
        walk = current.get()
        if walk is not None and event_type.endswith("StateEntered"):
            entered = details["stateEnteredEventDetails"]
            if not walk.enter(entered["name"], json.loads(entered["input"])):
                return None
        return original(execution, event_type, details)

    stepfunctions._add_event = add_event


def _wrap_run_sub_machine() -> None:
    original = stepfunctions._run_sub_machine

    def run_sub_machine(states: Any, start: Any, data: Any, execution: Any, context: Any) -> Any:
        outer = current.get()
        walk = Walk() if outer is None else outer.walk_of(states, context)
        if walk.finished:
            return copy.deepcopy(walk.result)
        walk.begin(context)
        token = current.set(walk)
        try:
            start, data = (walk.state or start), (data if walk.state is None else walk.data)
            walk.result = copy.deepcopy(original(states, start, data, execution, context))
            walk.finished = True
        finally:
            current.reset(token)
        return walk.result

    stepfunctions._run_sub_machine = run_sub_machine


def _note_context(name: str) -> None:
    """The emulator makes an execution's context object where nothing can see it but handlers."""
    original: Callable[..., Any] = getattr(stepfunctions, name)

    def handle(*arguments: Any) -> Any:
        walk = current.get()
        if walk is not None and walk.context is None:
            walk.context = arguments[-1]
            walk.context["Execution"].setdefault("RedriveCount", 0)
        return original(*arguments)

    setattr(stepfunctions, name, handle)


def _note_attempts(name: str, branches_of: Callable[[dict[str, Any]], Sequence[Any]]) -> None:
    original: Callable[..., Any] = getattr(stepfunctions, name)

    def run_all(state: dict[str, Any], *arguments: Any) -> Any:
        walk = current.get()
        if walk is not None:
            walk.attempt(branches_of(state))
        return original(state, *arguments)

    setattr(stepfunctions, name, run_all)
