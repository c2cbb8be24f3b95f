"""The actors when an execution ends: its own states, passes of the reaper, and other executions.

One execution may be stopped and redriven, `STOPPABLE`. Its calls that are under way go on when it
ends, as functions do that have been invoked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from fairlock.errors import LockLost
from fairlock.protocol.claims import SECOND_PASS_MS
from fairlock.protocol.model import AcquireRequest, Grant, KeepAliveRequest, ReleaseRequest
from fairlock.protocol.outcomes import Released
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import ExecutionEnded
from fairlock.testing.manual_clock import START_MS
from tests.model.numbered_tables import LOCK
from tests.model.replay import Call, RecordedWorld
from tests.model.scene import Faults
from tests.support import Operations

# How far everything is at one moment: the table, each actor, and the calls under way.


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
        stops: how often the stoppable execution was stopped.
        redrives: how often it was redriven; it runs if that is as often as it was stopped.
        left: the faults that may still happen.
        wire: the request that is still on its way, if there is one.
    """

    table: int
    instant: int
    stops: int
    redrives: int
    left: Faults
    wire: Call | None
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
        by: which actor takes it; -1 if no one does.
        name: what is said of it in a trace.
        must: whether it comes by itself.
    """

    to: State
    by: int
    name: str
    must: bool


STOPPABLE: Final = "stoppable"

ACQUIRE: Final = "acquire"
RELEASE: Final = "release"
RELEASE_AFTER_ERROR: Final = "release after error"
HEARTBEAT: Final = "heartbeat"
REAP: Final = "reap"
FORCE: Final = "force"

Beginning = tuple[str, bool]
"""The name of a call that may begin, and whether it will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A guard: acquire, work, release.

    Attributes:
        name: the beginning of its owner ids.
        place: its place in the queue.
        stoppable: whether it belongs to the execution that may be stopped.
        keep_alive: whether heartbeats stand beside its work.
        may_fail: whether its work may fail.
    """

    name: str
    place: int
    stoppable: bool = False
    keep_alive: bool = False
    may_fail: bool = False

    @property
    def execution_arn(self) -> str:
        return STOPPABLE if self.stoppable else f"execution-of-{self.name}"

    def owner_id(self, owner: int) -> str:
        return f"{self.name}-{owner}"

    def task_token(self, number: int) -> str:
        return f"{self.name}-{number}"

    def acquisition(self, owner: int, run: int) -> AcquireRequest:
        return AcquireRequest(
            lock_name=LOCK,
            owner_id=self.owner_id(owner),
            owner_name=self.name,
            lease_ms=10_000,
            execution_arn=self.execution_arn,
            redrives=run if self.stoppable else 0,
        )

    def beginnings(self, local: Local) -> Iterator[Beginning]:
        match local.status:
            case Status.IDLE:
                yield ACQUIRE, True
            case Status.WORKING | Status.RELEASING:
                yield RELEASE, True
            case Status.FAILED:
                yield RELEASE_AFTER_ERROR, True

    def operate(self, call: Operation, store: Operations, _world: RecordedWorld) -> object:
        acquisition = self.acquisition(call.owner, call.run)
        if call.name == ACQUIRE:
            task_token = self.task_token(call.number)
            return store.acquire(replace(acquisition, waits=True, task_token=task_token))
        failed = call.name == RELEASE_AFTER_ERROR
        return store.release(
            ReleaseRequest(
                lock_name=LOCK,
                owner_id=acquisition.owner_id,
                waits=failed,
                execution_arn=self.execution_arn,
                keep_alive=self.keep_alive and not failed,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats:
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
    def stoppable(self) -> bool:
        return self.workflow.stoppable

    def task_token(self, number: int) -> str:
        return f"{self.workflow.name}-heartbeat-{number}"

    def beginnings(self, local: Local, work: Local) -> Iterator[Beginning]:
        if work.status is Status.DONE:
            if local.calls < self.most + 3:
                yield HEARTBEAT, True
        elif work.status in (Status.WORKING, Status.RELEASING) and local.calls < self.most:
            yield HEARTBEAT, False

    def operate(self, call: Operation, store: Operations, world: RecordedWorld) -> object:
        request = KeepAliveRequest(
            acquisition=self.workflow.acquisition(call.owner, call.run),
            execution_arn=self.workflow.execution_arn,
            task_token=self.task_token(call.number),
        )
        outcome = store.keep_alive(request)
        if outcome is KeepAliveOutcome.DONE:
            owner_id = request.acquisition.owner_id
            world.end_heartbeat(request.task_token, Released(lock_name=LOCK, owner_id=owner_id))
        if outcome is KeepAliveOutcome.LOST:
            world.end_heartbeat(request.task_token, LockLost("lost"))
        return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapPass:
    """A message of the reap queue.

    Attributes:
        redrives: how often the execution had been redriven when it ended.
        second: whether it comes when no call of that run is under way any more.
        after: the pass that sends it, if it is not an event's.
        sure: whether it tells of which run it is, so that no one is asked.
        forged: whether it may come at any time. If it comes too early it is dropped: it might as
            well have come later.
    """

    name: str
    redrives: int = 0
    second: bool = False
    after: str | None = None
    forged: bool = False
    sure: bool = False
    stoppable: bool = False

    def operate(self, _call: Operation, store: Operations, _world: RecordedWorld) -> object:
        ended = ExecutionEnded(
            execution_arn=STOPPABLE,
            redrives=self.redrives,
            # So early that it may be a second pass, though all was claimed by then.
            ended_at_ms=START_MS - SECOND_PASS_MS + 1_000 if self.sure else None,
            second_pass=self.second,
        )
        return store.reap(ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedRelease:
    """An operator releases the lock of a workflow, once, while the workflow works."""

    workflow: Workflow
    name: str = "force"
    stoppable: bool = False

    def beginnings(self, _local: Local, work: Local) -> Iterator[Beginning]:
        if work.status is Status.WORKING:
            yield FORCE, False

    def operate(self, _call: Operation, store: Operations, _world: RecordedWorld) -> object:
        owner_id = self.workflow.owner_id(0)
        return store.release(ReleaseRequest(lock_name=LOCK, owner_id=owner_id))


Actor = Workflow | Heartbeats | ReapPass | ForcedRelease
