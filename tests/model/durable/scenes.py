"""The searches over durable executions: what these record, what must hold, what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, ClassVar, Final, NamedTuple

from aws_durable_execution_sdk_python import CallbackTimeoutError
from aws_durable_execution_sdk_python.config import StepSemantics
from aws_durable_execution_sdk_python.exceptions import SuspendExecution

from fairlock.durable import durable_lock, holding
from fairlock.store import release
from tests.model.scene import Fault, Faults, Mutant, Scene
from tests.support.weakened import edited

# A durable context over recorded operations: one move performs one operation, or suspends.
#
# The code under search is `fairlock.durable` itself. It runs from its start each time, as a
# replay does, with what is recorded; so a kill between two operations changes nothing, and only a
# kill between the effect of an operation and its record is a move of its own.


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
        log: what is recorded.
        left: how many operations may still be performed.
        dies: whether the function is killed before what it performs is recorded.
    """

    arn: str
    log: dict[str, Recorded]
    left: int = 1
    dies: bool = False
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
    """Tells the callbacks of all executions apart, in letters that a callback id may have."""
    return f"{arn}|{name}".encode().hex()


class Invariant(StrEnum):
    """What must hold."""

    HELD = "an execution works only while it holds the lock, by the grant that it knows"
    FREE = "when all is over no one holds the lock, and no one waits"
    WAKE_UP = "an execution sleeps on its callback while it holds the lock, and no push was lost"
    FALSE_LOSS = "an execution is told of a loss that did not happen"
    ENDED = "an execution neither goes on nor has ended"


class Execution(NamedTuple):
    """How far one durable execution is.

    Attributes:
        status: "running", "done", "late", "lost", "failed" or "stopped".
        log: its recorded operations.
        is_late: whether its longest wait is over.
        entered: how many owner ids it has made.
    """

    status: str = "running"
    log: Log = ()
    is_late: bool = False
    entered: int = 0

    def recorded(self, name: str, operation: Recorded) -> Execution:
        return self._replace(log=tuple({**dict(self.log), name: operation}.items()))


class State(NamedTuple):
    """Everything at one moment.

    Attributes:
        table: number of the table's content.
        anna_holds: whether the direct owner still has the lock.
        left: the faults that may still happen.
        passes: how many reap passes of the stopped execution were made.
        fault: what went wrong on the way here.
    """

    table: int
    executions: tuple[Execution, ...]
    anna_holds: bool
    left: Faults
    passes: int = 0
    fault: Invariant | None = None

    def with_(self, at: int, execution: Execution) -> State:
        executions = (*self.executions[:at], execution, *self.executions[at + 1 :])
        return self._replace(executions=executions)


class Move(NamedTuple):
    """One step; it comes by itself if it `must`."""

    to: State
    name: str
    must: bool


@dataclass(frozen=True, slots=True)
class DurableScene(Scene):
    """Durable executions, behind an owner who has the lock at first if `begin` names one.

    Attributes:
        gives_up: whether the longest wait may end.
        fails: whether the work raises an error.
        passes_through: whether another owner comes and goes after each release.
    """

    invariants: frozenset[StrEnum] = frozenset(Invariant)
    gives_up: bool = False
    fails: bool = False
    passes_through: bool = False


_ONE: Final = (Execution(),)
_TWO: Final = (Execution(), Execution())
_ANNA: Final = ("anna",)
DURABLE_SCENES: Final = (
    DurableScene("a function dies at any of its operations, alone", _ONE, (Fault.KILL, Fault.KILL)),
    DurableScene(
        "a function whose work fails dies at any of its operations",
        _ONE,
        (Fault.KILL, Fault.KILL),
        fails=True,
    ),
    DurableScene(
        "a durable execution waits, dies, and pushes to it are lost",
        _ONE,
        (Fault.KILL, Fault.LOST_PUSH, Fault.TIMEOUT),
        begin=_ANNA,
    ),
    DurableScene(
        "a durable execution gives up in the moment in which it is handed the lock",
        _ONE,
        (Fault.KILL, Fault.LOST_PUSH),
        begin=_ANNA,
        gives_up=True,
    ),
    DurableScene("two durable executions, whose functions die", _TWO, (Fault.KILL, Fault.KILL)),
    DurableScene(
        "two durable executions behind an owner, one of which gives up",
        _TWO,
        begin=_ANNA,
        gives_up=True,
    ),
    DurableScene(
        "two durable executions behind an owner, a death and a lost push",
        _TWO,
        (Fault.KILL, Fault.LOST_PUSH),
        begin=_ANNA,
    ),
    DurableScene(
        "one of two durable executions is stopped, at any time",
        _TWO,
        (Fault.LOST_PUSH, Fault.STOP),
        begin=_ANNA,
    ),
    DurableScene("three durable executions", (Execution(), *_TWO), (Fault.LOST_PUSH,)),
    DurableScene(
        "a release is repeated after another owner has come and gone",
        _ONE,
        (Fault.KILL,),
        passes_through=True,
    ),
)
_ALONE: Final = DurableScene("alone", _ONE, (Fault.KILL,))
_BEHIND: Final = DurableScene("behind", _ONE, (Fault.LOST_PUSH,), begin=_ANNA)


_NOT_THERE: Final = "if name not in self.log:"
_CALLBACK_AGAIN: Final = """if not self.left:
        name = f"{name} again"
        self.log.setdefault(name, Recorded("started"))
    """
"""A replay that has nothing else to do makes another one."""

DURABLE_MUTANTS: Final[dict[str, Mutant]] = {
    "a durable execution releases when it is suspended": Mutant(
        Invariant.HELD,
        _ALONE,
        (holding, "_is_end_of_block", lambda _error: True),
    ),
    "an owner id is made outside of a step": Mutant(
        Invariant.FREE,
        _ALONE,
        edited(
            durable_lock.Acquisition,
            "enter",
            'self.context.step(_enter, name=_operation(self.options.name, "enter"))',
            "_enter(None)",
        ),
    ),
    "a callback is made again on each replay": Mutant(
        Invariant.WAKE_UP,
        _BEHIND,
        edited(RecordedContext, "create_callback", _NOT_THERE, f"{_CALLBACK_AGAIN}{_NOT_THERE}"),
    ),
    "an execution that gives up does not leave": Mutant(
        Invariant.FREE,
        DurableScene("gives up", _ONE, begin=_ANNA, gives_up=True),
        (durable_lock.Acquisition, "_leave", lambda *_args, **_kwargs: None),
    ),
    "a release does not count its repeats": Mutant(
        Invariant.FALSE_LOSS,
        DurableScene("repeated", _ONE, (Fault.KILL,), passes_through=True),
        (durable_lock, "REPEATS_COUNTED", durable_lock.REPEATED),
        # The claim knows it too, unless the function died before it had marked that.
        (release, "gave_back_before", lambda _item: False),
    ),
}
