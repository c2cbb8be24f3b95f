"""A search over durable executions: how many there are, and what may go wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tests.model.durable.recorded_context import Log


class Invariant(StrEnum):
    """What must hold."""

    HELD = "an execution works only while it holds the lock, by the grant that it knows"
    FREE = "when all is over no one holds the lock, and no one waits"
    WAKE_UP = "an execution sleeps on its callback while it holds the lock, and no push was lost"
    FALSE_LOSS = "an execution is told of a loss that did not happen"
    ENDED = "an execution neither goes on nor has ended"


ALL: Final = frozenset(Invariant)


class Execution(NamedTuple):
    """How far one durable execution is.

    Attributes:
        status: "running", "done", "late", "lost", "failed" or "stopped".
        log: its recorded operations.
        is_late: whether its longest wait is over.
        entered: how many owner ids it has made.
        again: how many callbacks it has made again.
    """

    status: str = "running"
    log: Log = ()
    is_late: bool = False
    entered: int = 0
    again: int = 0


class State(NamedTuple):
    """Everything at one moment.

    Attributes:
        table: number of the table's content.
        executions: how far each is.
        anna_holds: whether the direct owner still has the lock.
        kills, lost, timeouts, stops: how many may still come.
        passes: how many reap passes of the stopped execution were made.
        fault: what went wrong on the way here.
    """

    table: int
    executions: tuple[Execution, ...]
    anna_holds: bool
    kills: int
    lost: int
    timeouts: int
    stops: int
    passes: int = 0
    fault: Invariant | None = None


class Move(NamedTuple):
    """One step; it comes by itself if it `must`."""

    to: State
    name: str
    must: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableScene:
    """One search.

    Attributes:
        executions: how many want the lock.
        anna_holds: whether a direct owner has it at first, who releases some time.
        kills: how many functions die between the effect of an operation and its record.
        lost: how many pushes are lost.
        timeouts: how many fallback periods pass.
        stops: how many executions are stopped, at most one.
        gives_up: whether the longest wait may end.
        fails: whether the work raises an error.
        passes_through: whether another owner comes and goes after each release.
    """

    name: str
    executions: int = 1
    anna_holds: bool = False
    kills: int = 0
    lost: int = 0
    timeouts: int = 0
    stops: int = 0
    gives_up: bool = False
    fails: bool = False
    passes_through: bool = False
    invariants: frozenset[Invariant] = ALL

    def tell(self, way: Iterable[tuple[State, Move]]) -> Iterable[str]:
        return (move.name for _, move in way)
