"""What can happen next to executions that end: one request at a time, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.model import Grant, Liveness, Queued, Reaped, Refusal
from leasehold.workflows.engine import Delivery, Execution
from tests.model.executions.actors import (
    ACQUIRE,
    BEAT,
    DOOMED,
    FORCE,
    LOOK,
    RELEASE,
    RELEASE_AFTER_ERROR,
    Beats,
    Force,
    Local,
    Look,
    Operation,
    Status,
    Workflow,
)
from tests.model.executions.calls import Calls
from tests.model.executions.scene import Scene
from tests.model.replay import Call
from tests.model.request_names import DESCRIBE, END_BEAT, PUSH, Names

_BEATS_AFTER_THE_WORK: Final = 3
MOST_ACQUISITIONS: Final = 3


class State(NamedTuple):
    """Everything at one moment.

    Attributes:
        table: its number.
        epoch: see `replay`.
        stops: how often the doomed execution was stopped.
        redrives: how often it was redriven; it runs if that is as often as it was stopped.
        kills: how many functions may still be killed.
        hangs: how many calls may still be given up by their workflow, and go on.
        locals: the cast.
    """

    table: int
    epoch: int
    stops: int
    redrives: int
    kills: int
    hangs: int
    locals: tuple[Local, ...]

    @property
    def runs(self) -> bool:
        return self.stops == self.redrives


class Move(NamedTuple):
    """One step: where it leads, who took it, what it is called, and whether it must come."""

    to: State
    who: int
    name: str
    must: bool


class Lives:
    """The moves of a scene."""

    def __init__(self, scene: Scene, names: Names) -> None:
        self.scene = scene
        self.calls = Calls(scene.cast, names)
        self._at = {member.name: i for i, member in enumerate(scene.cast)}
        first = tuple(Local() for _ in scene.cast)
        self.start = State(0, 0, 0, 0, scene.kills, scene.hangs, first)
        for name in scene.arrived:
            self.start = self.finished(self.start, self._at[name], ACQUIRE)

    def moves(self, state: State) -> Iterator[Move]:
        """Everything that may happen next."""
        for who, local in enumerate(state.locals):
            for call in local.under_way():
                yield self.step(state, who, call)
                yield from self._faults(state, who, call)
            for name, must in self._beginnings(state, who):
                yield Move(self.begin(state, who, name), who, f"begins {name}", must)
            yield from self._fails(state, who)
        scene = self.scene
        if state.runs and state.stops < scene.stops and self._may_stop(state):
            yield Move(self._stopped(state), -1, "stopped", must=False)
        if not state.runs and state.redrives < scene.redrives:
            yield Move(state._replace(redrives=state.redrives + 1), -1, "redriven", must=False)
        if state.epoch < scene.epochs:
            yield Move(state._replace(epoch=state.epoch + 1), -1, "leases end", must=False)

    # --- calls

    def begin(self, state: State, who: int, name: str) -> State:
        member, local = self.scene.cast[who], state.locals[who]
        owner = local.owner
        if isinstance(member, Beats):
            owner = state.locals[self._at[member.workflow.name]].owner
        number = local.calls + 1
        call = self.calls.number(
            who, Operation(name, number, owner, state.stops, (), (state.epoch,))
        )
        status = Status.RELEASING if name == RELEASE else local.status
        return _with(state, who, local._replace(status=status, calls=number, current=call))

    def finished(self, state: State, who: int, name: str) -> State:
        """After a whole call, while nobody else moves."""
        state = self.begin(state, who, name)
        while (call := state.locals[who].current) is not None:
            state = self.step(state, who, call).to
        return state

    def step(self, state: State, who: int, call: int) -> Move:
        """One request of a call, and what it makes of who waits for its end."""
        asked = self.calls.request_of(call)
        after, answer = self._ask(state, asked)
        further = self.calls.answered(who, call, answer, state.epoch)
        outcome = self.calls.result_of(further)
        local = after.locals[who]
        if outcome is None:
            local = local.with_(call, further)
        else:
            waited = local.current == call
            local = local.with_(call, None)
            local = self._concluded(state, who, local, outcome) if waited else local
        return Move(_with(after, who, local), who, asked.name, must=True)

    def _ask(self, state: State, asked: Call) -> tuple[State, int]:
        if asked.method == PUSH:
            state, answer = self._push(state, *asked.payload)
        elif asked.method == END_BEAT:
            state, answer = self._end_beat(state, *asked.payload)
        elif asked.method == DESCRIBE:
            doomed = asked.payload == DOOMED
            liveness = Liveness.OVER if doomed and not state.runs else Liveness.RUNNING
            answer = Execution(liveness, state.redrives if doomed else 0)
        else:
            done = self.calls.done(state.table, asked)
            return state._replace(table=done.table), done.answer
        return state, self.calls.items.answer_number(answer)

    def _push(self, state: State, task_token: str, grant: Grant) -> tuple[State, object]:
        for who, member in enumerate(self.scene.cast):
            local = state.locals[who]
            if not isinstance(member, Workflow) or task_token != member.task_token(local.calls):
                continue
            asks = local.current is not None and self.calls.operation(local.current).name == ACQUIRE
            if (asks or local.status is Status.ASLEEP) and self._is_alive(state, member):
                return _with(state, who, _told(local.abandoned(), grant, state)), Delivery.DELIVERED
        return state, Delivery.GONE

    def _end_beat(self, state: State, task_token: str, is_lost: bool) -> tuple[State, object]:  # noqa: FBT001 - as recorded
        for who, member in enumerate(self.scene.cast):
            local = state.locals[who]
            if not isinstance(member, Beats) or task_token != member.task_token(local.calls):
                continue
            if local.status is Status.DONE or not self._is_alive(state, member):
                break
            state = _with(state, who, local.abandoned()._replace(status=Status.DONE))
            if is_lost:
                at = self._at[member.workflow.name]
                failed = state.locals[at].abandoned()._replace(status=Status.FAILED, lost=True)
                state = _with(state, at, failed)
            return state, Delivery.DELIVERED
        return state, Delivery.GONE

    # --- what members do by themselves

    def _beginnings(self, state: State, who: int) -> Iterator[tuple[str, bool]]:
        """Calls that may begin now, and whether they will."""
        member, local = self.scene.cast[who], state.locals[who]
        if local.current is not None or not self._is_alive(state, member):
            return
        if isinstance(member, Workflow):
            yield from _next_of_guard(member, local)
        elif local.status is not Status.IDLE:
            return
        elif isinstance(member, Look):
            yield from [(LOOK, True)] if self._is_due(state, member) else []
        else:
            work = state.locals[self._at[member.workflow.name]]
            yield from _next_beside(member, local, work)

    def _is_due(self, state: State, look: Look) -> bool:
        if state.stops <= look.redrives:
            return False
        if look.after is not None and state.locals[self._at[look.after]].status is not Status.DONE:
            return False
        calls = (call for local in self._doomed(state) for call in local.under_way())
        return not (
            look.second and any(self.calls.operation(call).run <= look.redrives for call in calls)
        )

    def _fails(self, state: State, who: int) -> Iterator[Move]:
        member, local = self.scene.cast[who], state.locals[who]
        works = local.status is Status.WORKING and local.current is None
        if isinstance(member, Workflow) and member.may_fail and works:
            if not self._is_alive(state, member):
                return
            state = _with(state, who, local._replace(status=Status.FAILED))
            for at, other in enumerate(self.scene.cast):
                if isinstance(other, Beats) and other.workflow == member:
                    over = state.locals[at].abandoned()._replace(status=Status.DONE)
                    state = _with(state, at, over)
            yield Move(state, who, "fails", must=False)

    def _concluded(self, state: State, who: int, local: Local, outcome: object) -> Local:
        member = self.scene.cast[who]
        if isinstance(outcome, LockStoreUnavailable):
            return local
        match outcome:
            case Grant():
                return _told(local, outcome, state)
            case Queued():
                return local._replace(status=Status.ASLEEP)
            case Refusal():  # It was released before, on its behalf: the guard begins anew.
                assert local.owner < MOST_ACQUISITIONS
                return local._replace(status=Status.IDLE, owner=local.owner + 1)
            case Reaped(complete=False):  # The same message is sent once more.
                return local
        return local if isinstance(member, Beats) else local._replace(status=Status.DONE)

    # --- what goes wrong

    def _faults(self, state: State, who: int, call: int) -> Iterator[Move]:
        local = state.locals[who]
        if state.kills:
            asked = self.calls.request_of(call)
            happened, _ = self._ask(state, asked)
            gone = happened.locals[who].with_(call, None)
            killed = _with(happened, who, gone)._replace(kills=state.kills - 1)
            yield Move(killed, who, f"{asked.name}, killed after it", must=False)
        if state.hangs and local.current == call:
            hung = _with(state, who, local.abandoned())._replace(hangs=state.hangs - 1)
            yield Move(hung, who, "is not waited for any more", must=False)

    def _may_stop(self, state: State) -> bool:
        under_way = (local.under_way() for local in self._doomed(state))
        return self.scene.stopped_in_calls or not any(under_way)

    def _doomed(self, state: State) -> list[Local]:
        both = zip(self.scene.cast, state.locals, strict=True)
        return [local for member, local in both if member.doomed]

    def _stopped(self, state: State) -> State:
        for who, member in enumerate(self.scene.cast):
            if member.doomed:
                local = state.locals[who].abandoned()
                if local.status is Status.ASLEEP:  # Redrive repeats the state that was stopped.
                    local = local._replace(status=Status.IDLE)
                state = _with(state, who, local)
        return state._replace(stops=state.stops + 1)

    def _is_alive(self, state: State, member: Workflow | Beats | Look | Force) -> bool:
        return state.runs or not member.doomed


def _next_of_guard(guard: Workflow, local: Local) -> Iterator[tuple[str, bool]]:
    match local.status:
        case Status.IDLE:
            yield ACQUIRE, True
        case Status.ASLEEP if local.calls <= guard.polls:
            yield ACQUIRE, False
        case Status.WORKING | Status.RELEASING:
            yield RELEASE, True
        case Status.FAILED:
            yield RELEASE_AFTER_ERROR, True


def _next_beside(member: Beats | Force, local: Local, work: Local) -> Iterator[tuple[str, bool]]:
    if isinstance(member, Force):
        yield from [(FORCE, False)] if work.status is Status.WORKING else []
    elif work.status is Status.DONE:
        beats_on = local.calls < member.most + _BEATS_AFTER_THE_WORK
        yield from [(BEAT, True)] if beats_on else []
    elif work.status in (Status.WORKING, Status.RELEASING) and local.calls < member.most:
        yield BEAT, False


def _told(local: Local, grant: Grant, state: State) -> Local:
    told, told_in = grant.fencing_token, state.stops
    return local._replace(status=Status.WORKING, told=told, told_in=told_in)


def _with(state: State, who: int, local: Local) -> State:
    changed = (*state.locals[:who], local, *state.locals[who + 1 :])
    return state._replace(locals=changed)
