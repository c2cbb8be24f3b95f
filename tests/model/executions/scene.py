"""What a search over the ends of executions looks at: who acts, what may happen, what must hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.model.executions.actors import Member


class Promise(StrEnum):
    """What is checked."""

    LIMIT = "never more holders than one, and all are counted"
    HARMED = "who was granted the lock in this run of its execution, and works, holds it"
    SPARED = "the reaper takes no lock from the living, nor from who was granted it since a redrive"
    SKIPPED = "the reaper hands no lock to the dead"
    FREE = "in the end nobody dead or done holds the lock or waits for it"
    WAKE_UP = "in the end nobody living waits, unless its push was lost: then it holds the lock"
    FALSE_LOSS = "nobody is told that its lock is lost, if it is not"
    SILENT = "one more beat tells who lost its lock, or takes it again"
    ENDS = "a guard ends when its work has ended"


ALL: Final = frozenset(Promise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A cast, and how often what may happen to it.

    Attributes:
        name: a sentence.
        cast: who acts.
        stops: how often the doomed execution is stopped, at any time.
        redrives: how often it is redriven.
        epochs: how often all leases of before run out.
        kills: how many functions are killed after a request.
        hangs: how many calls are given up by those who wait, and go on.
        arrived: names of those who asked for the lock before the search begins, in this order.
        stopped_in_calls: whether the execution may be stopped while a call of it is under way.
        promises: what is checked.
    """

    name: str
    cast: tuple[Member, ...]
    arrived: tuple[str, ...] = ()
    stopped_in_calls: bool = True
    stops: int = 0
    redrives: int = 0
    epochs: int = 0
    kills: int = 0
    hangs: int = 0
    promises: frozenset[Promise] = ALL
