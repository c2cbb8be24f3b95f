"""Who acts when an execution ends: its own states, the reaper's looks, and others that live on.

Of the executions one may be stopped and redriven, `DOOMED`. Its calls that are under way go on when
it ends, as functions do that have been invoked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from leasehold.errors import LockLost
from leasehold.protocol.model import (
    AcquireRequest,
    ExecutionEnded,
    KeepAliveRequest,
    ReleaseRequest,
)
from leasehold.store.keep_alive import KeepAliveOutcome
from leasehold.store.lock_store import LockStore
from tests.model.replay import START_MS, RecordedWorld

LOCK: Final = "lock"
LEASE_MS: Final = 10_000
DOOMED: Final = "doomed"

ACQUIRE: Final = "acquire"
RELEASE: Final = "release"
RELEASE_AFTER_ERROR: Final = "release after error"
BEAT: Final = "beat"
LOOK: Final = "look"
FORCE: Final = "force"


class Status(StrEnum):
    """How far a member of the cast is, besides the call that it may have under way."""

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
        number: counts the calls of its member of the cast; tells task tokens apart.
        owner: counts the acquisitions of its workflow.
        run: how often the doomed execution had been stopped when the call began.
        answers: numbers of the answers that it has had.
        epochs: when it began, and when each answer came.
    """

    name: str
    number: int
    owner: int
    run: int
    answers: tuple[int, ...]
    epochs: tuple[int, ...]


class Local(NamedTuple):
    """How far one member of the cast is.

    Attributes:
        status: see `Status`.
        calls: how many it has begun.
        owner: which of its acquisitions this is.
        told: the fencing token that it was told.
        told_in: how often the doomed execution had been stopped by then.
        lost: whether it was told that its lock is lost.
        current: number of the call whose end it waits for.
        orphans: numbers of calls that nobody waits for any more, and that go on.
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
        """Nobody waits any more for the call under way; it goes on."""
        if self.current is None:
            return self
        return self._replace(current=None, orphans=(*self.orphans, self.current))

    def under_way(self) -> tuple[int, ...]:
        return self.orphans if self.current is None else (*self.orphans, self.current)

    def with_(self, before: int, after: int | None) -> Local:
        """The same with one call further on, or at its end."""
        if self.current == before:
            return self._replace(current=after)
        at = self.orphans.index(before)
        new = () if after is None else (after,)
        return self._replace(orphans=(*self.orphans[:at], *new, *self.orphans[at + 1 :]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A guard: acquire, work, release.

    Attributes:
        name: names its acquisitions.
        place: its place in the queue.
        doomed: whether it belongs to the execution that may be stopped.
        keep_alive: whether beats stand beside its work.
        may_fail: whether its work may fail.
        polls: how many fallback polls it may make.
    """

    name: str
    place: int
    doomed: bool = False
    keep_alive: bool = False
    may_fail: bool = False
    polls: int = 0

    @property
    def execution_arn(self) -> str:
        return DOOMED if self.doomed else f"execution-of-{self.name}"

    def owner_id(self, owner: int) -> str:
        return f"{self.name}-{owner}"

    def task_token(self, number: int) -> str:
        return f"{self.name}-{number}"

    def acquisition(self, owner: int) -> AcquireRequest:
        return AcquireRequest(
            lock_name=LOCK,
            owner_id=self.owner_id(owner),
            owner_name=self.name,
            lease_ms=LEASE_MS,
            execution_arn=self.execution_arn,
            entered_at_ms=START_MS + self.place,
        )

    def operate(self, call: Operation, store: LockStore, _world: RecordedWorld) -> object:
        acquisition = self.acquisition(call.owner)
        if call.name == ACQUIRE:
            task_token = self.task_token(call.number)
            return store.acquire(replace(acquisition, waits=True, task_token=task_token))
        failed = call.name == RELEASE_AFTER_ERROR
        return store.release(
            ReleaseRequest(
                lock_name=LOCK,
                owner_id=acquisition.owner_id,
                entered_at_ms=acquisition.entered_at_ms if failed else None,
                execution_arn=self.execution_arn,
                keep_alive=self.keep_alive and not failed,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The heartbeat state of a guard with keep_alive: one call after another.

    Attributes:
        workflow: the guard's other branch.
        most: how many of them it sends while the work goes on.
    """

    workflow: Workflow
    most: int

    @property
    def name(self) -> str:
        return f"{self.workflow.name}'s heartbeat"

    @property
    def doomed(self) -> bool:
        return self.workflow.doomed

    def task_token(self, number: int) -> str:
        return f"{self.workflow.name}-beat-{number}"

    def operate(self, call: Operation, store: LockStore, world: RecordedWorld) -> object:
        request = KeepAliveRequest(
            acquisition=self.workflow.acquisition(call.owner),
            execution_arn=self.workflow.execution_arn,
            task_token=self.task_token(call.number),
        )
        kept = store.keep_alive(request)
        if kept is KeepAliveOutcome.DONE:
            world.end_heartbeat(request.task_token, None)
        if kept is KeepAliveOutcome.LOST:
            world.end_heartbeat(request.task_token, LockLost("lost"))
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A message of the reap queue.

    Attributes:
        name: tells it from the others.
        redrives: how often the execution had been redriven when it ended.
        second: whether it comes when no call of that run is under way any more.
        after: the look that sends it, if it is not an event's.
    """

    name: str
    redrives: int = 0
    second: bool = False
    after: str | None = None
    doomed: bool = False

    def operate(self, _call: Operation, store: LockStore, _world: RecordedWorld) -> object:
        ended = ExecutionEnded(
            execution_arn=DOOMED, redrives=self.redrives, second_pass=self.second
        )
        return store.reap(ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Force:
    """Somebody who releases another's lock, once, while that one works."""

    workflow: Workflow
    name: str = "force"
    doomed: bool = False

    def operate(self, _call: Operation, store: LockStore, _world: RecordedWorld) -> object:
        owner_id = self.workflow.owner_id(0)
        return store.release(ReleaseRequest(lock_name=LOCK, owner_id=owner_id))


Member = Workflow | Beats | Look | Force
