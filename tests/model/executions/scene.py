"""A search over the ends of executions: its actors, what may happen to them, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.model.executions.actors import Actor


class Invariant(StrEnum):
    """What the reaper and keep_alive guarantee."""

    LIMIT = "never more holders than one, and all are counted"
    HARMED = "a workflow that was granted the lock since its last redrive, and works, holds it"
    SPARED = "the reaper evicts no owner alive, and none that was granted the lock since a redrive"
    SKIPPED = "the reaper hands no lock to the dead"
    FREE = "in the end no one dead or done holds the lock or waits for it"
    WAKE_UP = "in the end no one living waits, unless its push was lost: then it holds the lock"
    FALSE_LOSS = "no one is told that its lock is lost, if it is not"
    SILENT = "one more heartbeat tells that the lock was lost, or takes it again"
    ENDS = "a guard ends when its work has ended"


ALL: Final = frozenset(Invariant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Actors, and how often each thing may happen to them.

    Attributes:
        name: a sentence.
        stops: how often the stoppable execution is stopped, at any time.
        redrives: how often it is redriven.
        epochs: how often all leases run out.
        kills: how many functions are killed after a request.
        hangs: how many calls are given up by their workflow, and go on.
        copies: how many writes are given up after a time-out, and land at any time later.
        outdated: how many answers of Step Functions call an execution running that was stopped.
        arrived: names of workflows that asked for the lock before the search begins, in order.
        stopped_in_calls: whether the execution may be stopped while a call of it is under way.
        invariants: what is checked.
    """

    name: str
    actors: tuple[Actor, ...]
    arrived: tuple[str, ...] = ()
    stopped_in_calls: bool = True
    stops: int = 0
    redrives: int = 0
    epochs: int = 0
    kills: int = 0
    hangs: int = 0
    copies: int = 0
    outdated: int = 0
    invariants: frozenset[StrEnum] = ALL
