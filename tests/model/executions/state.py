"""How far everything is at one moment: the table, each actor, and the calls under way."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from fairlock.protocol.model import Grant


class Status(StrEnum):
    """How far an actor is, besides the call that it may have under way."""

    IDLE = "idle"
    ASLEEP = "asleep"
    WORKING = "working"
    RELEASING = "releasing"
    FAILED = "failed"
    DONE = "done"


class Operation(NamedTuple):
    """A call of the service under way.

    Attributes:
        name: what it does.
        number: counts the calls of its actor; tells task tokens apart.
        owner: counts the acquisitions of its workflow.
        run: how often the stoppable execution had been stopped when the call began.
        answers: numbers of the answers that it has had.
        instants: when it began, and when each answer came.
    """

    name: str
    number: int
    owner: int
    run: int
    answers: tuple[int, ...]
    instants: tuple[int, ...]


class Local(NamedTuple):
    """How far one actor is.

    Attributes:
        status: see `Status`.
        calls: how many it has begun.
        owner: which of its acquisitions this is.
        told: the fencing token that it was told.
        told_in: how often the stoppable execution had been stopped by then.
        lost: whether it was told that its lock is lost.
        current: number of the call whose end it waits for.
        orphans: numbers of calls that no one waits for any more, and that go on.
    """

    status: Status = Status.IDLE
    calls: int = 0
    owner: int = 0
    told: int = 0
    told_in: int = 0
    lost: bool = False
    current: int | None = None
    orphans: tuple[int, ...] = ()

    def abandoned(self) -> Local:
        """No one waits any more for the call under way; it goes on."""
        if self.current is None:
            return self
        return self._replace(current=None, orphans=(*self.orphans, self.current))

    def granted(self, grant: Grant, stops: int) -> Local:
        """It is told that it holds the lock, after so many stops of the stoppable execution."""
        return self._replace(status=Status.WORKING, told=grant.fencing_token, told_in=stops)

    def under_way(self) -> tuple[int, ...]:
        return self.orphans if self.current is None else (*self.orphans, self.current)

    def with_(self, before: int, after: int | None) -> Local:
        """The same with one call further on, or at its end."""
        if self.current == before:
            return self._replace(current=after)
        at = self.orphans.index(before)
        new = () if after is None else (after,)
        return self._replace(orphans=(*self.orphans[:at], *new, *self.orphans[at + 1 :]))


class State(NamedTuple):
    """Everything at one moment.

    Attributes:
        table: its number.
        instant: see `replay`.
        stops: how often the stoppable execution was stopped.
        redrives: how often it was redriven; it runs if that is as often as it was stopped.
        kills: how many functions may still be killed.
        hangs: how many calls may still be given up by their workflow, and go on.
        outdated: how many answers may still call an execution running that was stopped.
        copies: how many writes may still be given up and land later.
        wire: the call whose request is on its way, and 1; 0 if there is none.
        locals: how far each actor is.
    """

    table: int
    instant: int
    stops: int
    redrives: int
    kills: int
    hangs: int
    outdated: int
    copies: int
    wire: int
    locals: tuple[Local, ...]

    @property
    def runs(self) -> bool:
        return self.stops == self.redrives

    def with_local(self, at: int, local: Local) -> State:
        changed = (*self.locals[:at], local, *self.locals[at + 1 :])
        return self._replace(locals=changed)


class Move(NamedTuple):
    """One step.

    Attributes:
        to: where it leads.
        by: which actor takes it; -1 if no one does.
        name: what is said of it in a trace.
        must: whether it comes by itself.
    """

    to: State
    by: int
    name: str
    must: bool
