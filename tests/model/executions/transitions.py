"""What may happen next to executions that end: one request at a time, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.lock_table import Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, Reaped, Refusal
from fairlock.protocol.schema import ENTERED_AT_MS, number
from fairlock.testing.manual_clock import START_MS
from tests.model import search
from tests.model.executions.actors import (
    ACQUIRE,
    REAP,
    RELEASE,
    STOPPABLE,
    Actor,
    Heartbeats,
    Local,
    Move,
    Operation,
    ReapPass,
    State,
    Status,
    Workflow,
)
from tests.model.executions.scenes import ExecutionScene
from tests.model.numbered_tables import Numbered, NumberedTables
from tests.model.replay import (
    DESCRIBE,
    END_HEARTBEAT,
    PUSH,
    Call,
    Names,
    RecordedWorld,
    next_epoch,
    run_to_next_call,
    time_ms,
)
from tests.model.scene import Fault, spend

MOST_ACQUISITIONS: Final = 3
NO_WORKFLOW: Final = -1
_WRITES: Final = {"update", "delete", "transact"}
_CALLS_MS: Final = 100
"""Between the first calls of two workflows; their places are in this order."""


class Calls:
    """Numbers for calls under way, and the tables that their requests go to.

    The code runs once for each history of a call.
    """

    def __init__(self, actors: tuple[Actor, ...], names: Names) -> None:
        self.tables = NumberedTables(by_arrival=False)
        self.answered = cache(self._answered)
        self._actors, self._names = actors, names
        self._numbers = Numbered()
        self._next: list[object] = []

    def number(self, at: int, call: Operation) -> int:
        """The number of a call; what it asks next is then known, or what it returns."""
        number = self._numbers.number((at, call), call)
        if number == len(self._next):
            self._next.append(self._run(self._actors[at], call))
        return number

    def _run(self, actor: Actor, call: Operation) -> object:
        answers = [self.tables.answer(answer) for answer in call.answers]
        first_ms = actor.place * _CALLS_MS if isinstance(actor, Workflow) else 0
        claim = {ENTERED_AT_MS: number(START_MS + first_ms)}
        offset_ms = first_ms + call.number
        world = RecordedWorld(answers, call.instants, offset_ms, self._names, STOPPABLE, claim)
        return run_to_next_call(lambda store, world: actor.operate(call, store, world), world)

    def _answered(self, at: int, call: int, answer: int, instant: int) -> int:
        """The number of a call that has had one answer more."""
        before = self.operation(call)
        answers, instants = (*before.answers, answer), (*before.instants, instant)
        return self.number(at, before._replace(answers=answers, instants=instants))

    def operation(self, call: int) -> Operation:
        operation: Operation = self._numbers.values[call]
        return operation

    def request_of(self, call: int) -> Call:
        """The next request of a call under way."""
        request = self._next[call]
        assert isinstance(request, Call)
        return request

    def result_of(self, call: int) -> object:
        """What a call returns; None if it has another request."""
        outcome = self._next[call]
        return None if isinstance(outcome, Call) else outcome

    def request_names(self) -> frozenset[str]:
        return frozenset(call.name for call in self._next if isinstance(call, Call))


class World(search.Model):
    """A scene, and what may happen in it."""

    def __init__(self, scene: ExecutionScene, names: Names) -> None:
        super().__init__(scene)
        self.calls = Calls(scene.actors, names)
        self._has_forgeries = any(isinstance(a, ReapPass) and a.forged for a in scene.actors)
        self._at = {actor.name: i for i, actor in enumerate(scene.actors)}
        first = tuple(Local() for _ in scene.actors)
        self.start = State(0, 0, 0, 0, scene.faults, None, first)
        for name in scene.begin:
            self.start = self.finished(self.start, self._at[name], ACQUIRE)

    def request_names(self) -> frozenset[str]:
        return self.calls.request_names()

    def tell(self, way: Iterable[tuple[State, Move]]) -> Iterator[str]:
        """A line for each move."""
        for _, move in way:
            actor = self.scene.actors[move.by].name if move.by >= 0 else "the execution"
            yield f"{actor}: {move.name}"

    def _moves(self, state: State) -> Iterator[Move]:
        for at, local in enumerate(state.locals):
            for call in local.under_way():
                yield self.step(state, at, call)
                yield from self._faults(state, at, call)
            for name, must in self._beginnings(state, at):
                yield Move(self.begin(state, at, name), at, f"begins {name}", must)
            yield from self._fails(state, at)
        calls = [call for local in self._locals_of_stoppable(state) for call in local.under_way()]
        for fault in (Fault.STOP, Fault.STOP_AT_REST):
            stoppable = state.runs and not (calls and fault is Fault.STOP_AT_REST)
            if stoppable and (spent := _spend(state, fault)):
                yield Move(self._stopped(spent), NO_WORKFLOW, Fault.STOP, must=False)
        if not state.runs and (spent := _spend(state, Fault.REDRIVE)):
            redriven = spent._replace(redrives=state.redrives + 1)
            yield Move(redriven, NO_WORKFLOW, Fault.REDRIVE, must=False)
        if spent := _spend(state, Fault.EPOCH):
            later = spent._replace(instant=next_epoch(state.instant))
            yield Move(later, NO_WORKFLOW, "leases end", must=False)
        if state.wire:
            yield self._landed(state, state.wire)

    # --- calls

    def begin(self, state: State, at: int, name: str) -> State:
        actor, local = self.scene.actors[at], state.locals[at]
        owner = local.owner
        if isinstance(actor, Heartbeats):
            owner = state.locals[self._at[actor.workflow.name]].owner
        number = local.calls + 1
        call = self.calls.number(
            at, Operation(name, number, owner, state.stops, (), (state.instant,))
        )
        status = Status.RELEASING if name == RELEASE else local.status
        return state.with_local(at, local._replace(status=status, calls=number, current=call))

    def finished(self, state: State, at: int, name: str) -> State:
        """After a whole call, while no one else moves."""
        state = self.begin(state, at, name)
        while (call := state.locals[at].current) is not None:
            state = self.step(state, at, call).to
        return state

    def step(self, state: State, at: int, call: int) -> Move:
        """One request of a call, and what it makes of the actor that waits for its end."""
        asked = self.calls.request_of(call)
        after, answer = self._ask(state, asked)
        return Move(self._answered(after, at, call, answer), at, asked.name, must=True)

    def _answered(self, state: State, at: int, call: int, answer: int) -> State:
        """After the answer to a request that was done."""
        further = self.calls.answered(at, call, answer, state.instant)
        outcome = self.calls.result_of(further)
        local = state.locals[at]
        if outcome is None:
            local = local.with_(call, further)
        else:
            waited = local.current == call
            local = local.with_(call, None)
            local = self._concluded(state, at, local, outcome) if waited else local
        return state.with_local(at, local)

    def _ask(self, state: State, asked: Call) -> tuple[State, int]:
        if asked.method == PUSH:
            state, answer = self._push(state, *asked.payload)
        elif asked.method == END_HEARTBEAT:
            state, answer = self._end_heartbeat(state, *asked.payload)
        elif asked.method == DESCRIBE:
            answer = self._described(state, asked.payload == STOPPABLE)
        else:
            done = self.calls.tables.apply(state.table, asked)
            return state._replace(table=done.table), done.answer
        return state, self.calls.tables.answer_number(answer)

    def _described(self, state: State, stoppable: bool) -> Execution:  # noqa: FBT001 - as recorded
        if not stoppable:
            return Execution(Liveness.RUNNING)
        if state.runs:
            return Execution(Liveness.RUNNING, state.redrives)
        just_now = self._has_forgeries and self._acquires_are_under_way(state, state.redrives)
        ended_at_ms = time_ms(state.instant) if just_now else None
        return Execution(Liveness.OVER, state.redrives, ended_at_ms)

    def _acquires_are_under_way(self, state: State, redrives: int) -> bool:
        """Whether a call goes on that a run of the execution has begun, up to this redrive."""
        calls = (call for local in self._locals_of_stoppable(state) for call in local.under_way())
        return any(self.calls.operation(call).run <= redrives for call in calls)

    def _push(self, state: State, task_token: str, grant: Grant) -> tuple[State, object]:
        for at, actor in enumerate(self.scene.actors):
            local = state.locals[at]
            if not isinstance(actor, Workflow) or task_token != actor.task_token(local.calls):
                continue
            asks = local.current is not None and self.calls.operation(local.current).name == ACQUIRE
            if (asks or local.status is Status.ASLEEP) and self._is_alive(state, actor):
                return state.with_local(
                    at, local.abandoned().granted(grant, state.stops)
                ), Delivery.DELIVERED
        return state, Delivery.GONE

    def _end_heartbeat(self, state: State, task_token: str, is_lost: bool) -> tuple[State, object]:  # noqa: FBT001 - as recorded
        for at, actor in enumerate(self.scene.actors):
            local = state.locals[at]
            if not isinstance(actor, Heartbeats) or task_token != actor.task_token(local.calls):
                continue
            if local.status is Status.DONE or not self._is_alive(state, actor):
                break
            state = state.with_local(at, local.abandoned()._replace(status=Status.DONE))
            if is_lost:
                work_at = self._at[actor.workflow.name]
                failed = state.locals[work_at].abandoned()._replace(status=Status.FAILED, lost=True)
                state = state.with_local(work_at, failed)
            return state, Delivery.DELIVERED
        return state, Delivery.GONE

    # --- what actors do by themselves

    def _beginnings(self, state: State, at: int) -> Iterator[tuple[str, bool]]:
        """Calls that may begin now, and whether they will."""
        actor, local = self.scene.actors[at], state.locals[at]
        if local.current is not None or not self._is_alive(state, actor):
            return
        if isinstance(actor, Workflow):
            yield from actor.beginnings(local)
        elif local.status is not Status.IDLE:
            return
        elif isinstance(actor, ReapPass):
            yield from [(REAP, not actor.forged)] if self._is_due(state, actor) else []
        else:
            yield from actor.beginnings(local, state.locals[self._at[actor.workflow.name]])

    def _is_due(self, state: State, reap: ReapPass) -> bool:
        if reap.forged:
            return True
        if state.stops <= reap.redrives:
            return False
        if reap.after is not None and state.locals[self._at[reap.after]].status is not Status.DONE:
            return False
        return not (reap.second and self._acquires_are_under_way(state, reap.redrives))

    def _fails(self, state: State, at: int) -> Iterator[Move]:
        actor, local = self.scene.actors[at], state.locals[at]
        works = local.status is Status.WORKING and local.current is None
        if isinstance(actor, Workflow) and actor.may_fail and works:
            if not self._is_alive(state, actor):
                return
            state = state.with_local(at, local._replace(status=Status.FAILED))
            for other_at, other in enumerate(self.scene.actors):
                if isinstance(other, Heartbeats) and other.workflow == actor:
                    over = state.locals[other_at].abandoned()._replace(status=Status.DONE)
                    state = state.with_local(other_at, over)
            yield Move(state, at, "fails", must=False)

    def _concluded(self, state: State, at: int, local: Local, outcome: object) -> Local:
        actor = self.scene.actors[at]
        if isinstance(outcome, LockStoreUnavailable):
            forged = isinstance(actor, ReapPass) and actor.forged
            return local._replace(status=Status.DONE) if forged else local
        match outcome:
            case Grant():
                return local.granted(outcome, state.stops)
            case Queued():
                return local._replace(status=Status.ASLEEP)
            case Refusal():  # It was released before, on its behalf: the guard begins again.
                assert local.owner < MOST_ACQUISITIONS
                return local._replace(status=Status.IDLE, owner=local.owner + 1)
            case Reaped(complete=False):  # The same message is sent once more.
                return local
        return local if isinstance(actor, Heartbeats) else local._replace(status=Status.DONE)

    # --- what goes wrong

    def _faults(self, state: State, at: int, call: int) -> Iterator[Move]:
        local = state.locals[at]
        asked = self.calls.request_of(call)
        asks = not state.runs and (asked.method, asked.payload) == (DESCRIBE, STOPPABLE)
        if asks and (spent := _spend(state, Fault.OUTDATED)):
            outdated = Execution(Liveness.RUNNING, state.redrives)
            answer = self.calls.tables.answer_number(outdated)
            after = self._answered(spent, at, call, answer)
            yield Move(after, at, f"{asked.name}, {Fault.OUTDATED}", must=False)
        if spent := _spend(state, Fault.KILL):
            happened, _ = self._ask(spent, asked)
            killed = happened.with_local(at, happened.locals[at].with_(call, None))
            yield Move(killed, at, f"{asked.name}, {Fault.KILL}", must=False)
        is_waited_for = local.current == call and self.scene.actors[at].stoppable
        if is_waited_for and (spent := _spend(state, Fault.HANG)):
            hung = spent.with_local(at, local.abandoned())._replace(instant=state.instant + 1)
            yield Move(hung, at, Fault.HANG, must=False)
        yield from self._copies(state, at, call)

    def _copies(self, state: State, at: int, call: int) -> Iterator[Move]:
        """A write stays on the wire, for at least as long as a time-out.

        botocore sends it again, and the call goes on; or the function is given up, and its caller
        asks again. DynamoDB remembers the request token of a transaction that was committed, so a
        copy of that one changes nothing.
        """
        asked, spent = self.calls.request_of(call), _spend(state, Fault.COPY)
        if spent is None or state.wire or asked.method not in _WRITES:
            return
        waited = spent._replace(wire=asked, instant=state.instant + 1)
        given_up = waited.with_local(at, state.locals[at].with_(call, None))
        yield Move(given_up, at, f"{asked.name}, {Fault.HELD_BACK}", must=False)
        _, answer = self._ask(state, asked)
        committed = isinstance(self.calls.tables.answer(answer), Written)
        if asked.method != "transact" or not committed:
            again = self.step(waited, at, call)
            yield again._replace(name=f"{asked.name}, {Fault.COPY}", must=False)

    def _landed(self, state: State, late: Call) -> Move:
        """The request on the wire arrives; no one waits for its answer."""
        done = self.calls.tables.apply(state.table, late)
        after = state._replace(table=done.table, wire=None)
        return Move(after, NO_WORKFLOW, f"the late copy of {late.name} lands", must=False)

    def _locals_of_stoppable(self, state: State) -> list[Local]:
        both = zip(self.scene.actors, state.locals, strict=True)
        return [local for actor, local in both if actor.stoppable]

    def _stopped(self, state: State) -> State:
        for at, actor in enumerate(self.scene.actors):
            if actor.stoppable:
                local = state.locals[at].abandoned()
                if local.status is Status.ASLEEP:  # Redrive repeats the state that was stopped.
                    local = local._replace(status=Status.IDLE)
                state = state.with_local(at, local)
        return state._replace(stops=state.stops + 1)

    def _is_alive(self, state: State, actor: Actor) -> bool:
        return state.runs or not actor.stoppable


def _spend(state: State, fault: Fault) -> State | None:
    left = spend(state.left, fault)
    return None if left is None else state._replace(left=left)
