"""What may happen next among clients that contend for one lock: a request of one, or a fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.lock_table import Written
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Refusal
from tests.model import search
from tests.model.contention.clients import OVER, Client, Local, Status
from tests.model.contention.progress import Progress
from tests.model.numbered_tables import EMPTY, NumberedTables
from tests.model.replay import DESCRIBE, PUSH, Call, Names, next_epoch
from tests.model.scene import Fault, Scene, spend, spent

NONE: Final = -1
State = tuple[Any, ...]
"""Numbers of the table and the instant; the faults that are left; what is on the wire; numbers of
how far each client is."""
WIRE: Final = 3
"""Where a state has the request that is still on its way, if there is one."""
FIRST_CLIENT: Final = 4
_REPEATABLE: Final = {"update", "delete"}
_WRITES: Final = {*_REPEATABLE, "transact"}
_KEEPS_ITS_PLACE: Final = "attribute_exists"
"""How the condition of a join begins whose waiter is there already."""


class Move(NamedTuple):
    """One step.

    Attributes:
        by: whose it is, as a place in the state; NONE if time passes.
        call: its request, if it has one.
        fault: what goes wrong, if anything does.
    """

    to: State
    by: int
    call: Call | None
    fault: Fault | None = None


class World(search.Model):
    """A table, its clients, and the faults that may happen.

    The last client is a newcomer that takes no steps by itself, see `Recovery`.
    """

    def __init__(self, scene: Scene, names: Names) -> None:
        super().__init__(scene)
        most = max(client.limit for client in scene.actors)
        newcomer = Client(name="newcomer", waits=False, limit=most)
        self.clients: tuple[Client, ...] = (*scene.actors, newcomer)
        self.tables = NumberedTables(by_arrival=True)
        self.progress = Progress(self.clients, self.tables, names)
        self.start: State = (EMPTY, 0, scene.faults, None, *self.progress.first())
        self._pushed = {outcome: self.tables.answer_number(outcome) for outcome in Delivery}
        self._written = self.tables.answer_number(Written({}))
        self._liveness = {value: self.tables.answer_number(Execution(value)) for value in Liveness}
        for name in scene.begin:
            self.start = self._after_first_operation(self.start, name)

    def _moves(self, state: State) -> Iterator[Move]:
        _, instant, fails, wire = state[:FIRST_CLIENT]
        for at in range(FIRST_CLIENT, len(state) - 1):
            for number in self.progress.starts(state[at], instant):
                yield self.step(state, at, number)
                if fails:
                    yield from self._failures(state, at, number)
            if fails:
                yield from self._deaths(state, at)
        if spent := self._spend(state, Fault.EPOCH):
            later = (spent[0], next_epoch(instant), *spent[2:])
            yield Move(later, NONE, None, Fault.EPOCH)
        if wire:
            yield self._landed(state)

    def has_met(self, state: State, *faults: Fault) -> bool:
        """Whether any of these faults has happened."""
        return not spent(self.scene.faults, state[2]).isdisjoint(faults)

    def tell(self, way: Iterable[tuple[State, Move]]) -> Iterator[str]:
        """The steps, each with the lock and the queue after it."""
        for number, (before, move) in enumerate(way, start=1):
            yield f"{number:3}. {_event(self, before, move):76} {_table(self, move.to)}"

    def _after_first_operation(self, state: State, name: str) -> State:
        at = FIRST_CLIENT + [client.name for client in self.clients].index(name)
        is_under_way = True
        while is_under_way:
            [number] = self.progress.starts(state[at], state[1])
            state = self.step(state, at, number).to
            is_under_way = self.progress.known[state[at]].call is not None
        return state

    def step(self, state: State, at: int, number: int) -> Move:
        """A client's next request, and nothing goes wrong.

        A join and its confirmation are one move, unless queries may see joins in part. A reply may
        be lost between the two in any case.
        """
        call, (after, answer) = self._call(number), self._ask(state, number)
        answered = self.progress.answered(number, answer, state[1])
        after = _with(after, at, answered)
        if Fault.LATE_JOIN not in self.scene.faults and self._confirms(answered):
            return self.step(after, at, answered)._replace(call=call)
        return Move(after, at, call)

    def _confirms(self, number: int) -> bool:
        call = self.progress.known[number].call
        return call is not None and call.name == "confirm_join"

    def _call(self, number: int) -> Call:
        """The next request of a client that is in an operation."""
        call = self.progress.known[number].call
        assert call is not None
        return call

    def local(self, state: State, at: int) -> Local:
        """How far the client at this place of a state is."""
        return self.progress.known[state[at]].local

    def request_names(self) -> frozenset[str]:
        return frozenset(call.name for call in self.progress.calls.values())

    def _ask(self, state: State, number: int) -> tuple[State, int]:
        """The state when the request has happened, and the number of the answer."""
        call = self._call(number)
        if call.method == PUSH:
            return self._push(state, *call.payload)
        if call.method == DESCRIBE:
            return state, self._liveness[self._liveness_of(state, call.payload)]
        if self.progress.known[number].local.half_joined:
            return (self.tables.show_late(state[0]), *state[1:]), self._written
        done = self.tables.apply(state[0], call)
        return (done.table, *state[1:]), done.answer

    def _push(self, state: State, task_token: str, answer: Grant | Refusal) -> tuple[State, int]:
        known = self.progress.known
        for at in range(FIRST_CLIENT, len(state)):
            if known[state[at]].listens_to == task_token:
                local = known[state[at]].local
                remembered = state[0] + 1 if self.clients[local.client].remembers else 0
                if isinstance(answer, Refusal):
                    told = local.at(Status.SUPERSEDED)
                else:
                    token = answer.fencing_token
                    told = local.at(Status.WORKING, told=token, remembered=remembered)
                after = _with(state, at, self.progress.number(told))
                return after, self._pushed[Delivery.DELIVERED]
        return state, self._pushed[Delivery.GONE]

    def _liveness_of(self, state: State, execution_arn: str) -> Liveness:
        for at, client in enumerate(self.clients, start=FIRST_CLIENT):
            if client.execution_arn == execution_arn:
                local = self.local(state, at)
                over = local.status is Status.DEAD or local.orphaned
                return Liveness.OVER if over else Liveness.RUNNING
        raise LookupError(execution_arn)

    def _spend(self, state: State, kind: Fault) -> State | None:
        """The state after one more fault of this kind; None if there is none left."""
        left = spend(state[2], kind)
        return None if left is None else (*state[:2], left, *state[WIRE:])

    def _failures(self, state: State, at: int, number: int) -> Iterator[Move]:
        """The same request again, with each fault that may still happen to it."""
        progress, call = self.progress, self._call(number)
        asking = progress.number(progress.known[number].local.again())
        yield from self._late_join(state, at, number)
        if spent := self._spend(state, Fault.LOST_REPLY):
            after, _ = self._ask(spent, number)
            yield Move(_with(after, at, asking), at, call, Fault.LOST_REPLY)
        if call.method == PUSH and (spent := self._spend(state, Fault.LOST_PUSH)):
            unknown = progress.answered(number, self._pushed[Delivery.UNKNOWN], state[1])
            yield Move(_with(spent, at, unknown), at, call, Fault.LOST_PUSH)
        if call.method in _REPEATABLE and (spent := self._spend(state, Fault.REPEAT)):
            second = self.tables.apply(self.tables.apply(state[0], call).table, call)
            answered = progress.answered(number, second.answer, state[1])
            after = (second.table, *spent[1:])
            yield Move(_with(after, at, answered), at, call, Fault.REPEAT)
        yield from self._copies(state, at, number, asking)
        yield from self._late_calls(state, at, number, asking)

    def _late_calls(self, state: State, at: int, number: int, asking: int) -> Iterator[Move]:
        """This invocation stays on the wire, for at least as long as a time-out.

        Its caller gives it up and calls again. The function is invoked at any time later.
        """
        local, spent = self.progress.known[number].local, self._spend(state, Fault.LATE_CALL)
        begins = local.status is Status.ACQUIRING and not local.answers and not local.orphaned
        if spent is None or not begins:
            return
        name = self.clients[local.client].name
        for i, client in enumerate(self.clients):
            if client.late_call_of == name:
                late = Local(i, Status.ACQUIRING, calls=1, orphaned=True)
                late = late._replace(called_at=local.called_at)
                waited = _with(
                    _after_a_timeout(spent), FIRST_CLIENT + i, self.progress.number(late)
                )
                yield Move(_with(waited, at, asking), at, None, Fault.LATE_CALL)

    def _copies(self, state: State, at: int, number: int, asking: int) -> Iterator[Move]:
        """A sending of this write stays on the wire, for at least as long as a time-out.

        botocore sends it again, and the caller gets the answer to that sending; or the caller gives
        up, and begins the operation again. DynamoDB remembers the request token of a transaction
        that was committed, so a copy of that one changes nothing.
        """
        call, spent = self._call(number), self._spend(state, Fault.COPY)
        if spent is None or state[WIRE] or call.method not in _WRITES:
            return
        waited = _with(_after_a_timeout(spent), WIRE, call)
        yield Move(_with(waited, at, asking), at, call, Fault.HELD_BACK)
        done = self.tables.apply(state[0], call)
        if call.method != "transact" or done.answer != self._written:
            yield self.step(waited, at, number)._replace(fault=Fault.COPY)

    def _landed(self, state: State) -> Move:
        """The request on the wire arrives; no one waits for its answer."""
        done = self.tables.apply(state[0], state[WIRE])
        after = (done.table, *state[1:WIRE], None, *state[FIRST_CLIENT:])
        return Move(after, NONE, state[WIRE], Fault.LANDS)

    def _late_join(self, state: State, at: int, number: int) -> Iterator[Move]:
        """A transaction that joins is seen by a query only in part, until its caller goes on."""
        call, spent = self._call(number), self._spend(state, Fault.LATE_JOIN)
        local = self.progress.known[number].local
        if (
            spent is None
            or call.name != "join_queue"
            or call.payload.other.condition.startswith(_KEEPS_ITS_PLACE)
        ):
            return
        done = self.tables.apply(state[0], call)
        if done.answer == self._written and not local.half_joined:
            late = self.tables.hide(done.table, call.payload.other.item)
            half = self.progress.number(local._replace(half_joined=True), call)
            yield Move(_with((late, *spent[1:]), at, half), at, call, Fault.LATE_JOIN)

    def _deaths(self, state: State, at: int) -> Iterator[Move]:
        known = self.progress.known[state[at]]
        local = known.local
        is_at_work = local.status not in OVER and local.status is not Status.IDLE
        if not is_at_work or local.orphaned or local.half_joined:
            return
        if spent := self._spend(state, Fault.CRASH):
            dead = self.progress.number(local.dead()._replace(told=self._knew(state, local)))
            yield Move(_with(spent, at, dead), at, None, Fault.CRASH)
        if known.call is not None and (spent := self._spend(state, Fault.ORPHAN)):
            orphan = self.progress.number(local._replace(orphaned=True), known.call)
            yield Move(_with(spent, at, orphan), at, None, Fault.ORPHAN)

    def _knew(self, state: State, local: Local) -> int:
        """The grant that a client with a version knew of when it died; or had made by itself."""
        client = self.clients[local.client]
        if client.version is None or local.told or local.status is not Status.ACQUIRING:
            return local.told if client.version is not None else 0
        lock = self.tables.lock(state[0]).state
        mine = lock.holder(client.owner_id)
        if mine is None or lock.newest != client.version:
            return 0
        # A hand-off may have granted it the lock while it asked, and set the newest.
        untold = mine.pushed and mine.revision == 1
        return 0 if untold else mine.fencing_token


def _with(state: State, at: int, new: object) -> State:
    return (*state[:at], new, *state[at + 1 :])


def _after_a_timeout(state: State) -> State:
    return (state[0], state[1] + 1, *state[2:])


def _event(world: World, before: State, move: Move) -> str:
    if move.by == NONE:
        return f"the late copy of {move.call.name} lands" if move.call else str(move.fault)
    at = move.by
    client = world.clients[at - FIRST_CLIENT]
    status = world.local(move.to, at).status
    then = "" if before[at] == move.to[at] else f" → {status.value}"
    if move.call is None:
        return f"{client.name} {move.fault}"
    fault = f", {move.fault}" if move.fault else ""
    moved = before[0] != move.to[0]
    others = [
        f", {world.clients[i - FIRST_CLIENT].name} is told"
        for i in range(FIRST_CLIENT, len(before))
        if i != at and before[i] != move.to[i]
    ]
    effect = "" if moved or others else " (changes nothing)"
    return f"{client.name}: {move.call.name}{fault}{''.join(others)}{effect}{then}"


def _table(world: World, state: State) -> str:
    lock, waiting, _ = world.tables.lock(state[0])
    names = {client.owner_id: client.name for client in reversed(world.clients)}
    holders = [f"{names[h.owner_id]}#{h.fencing_token % 1000}" for h in lock.holders]
    waiters = [names[owner_id] for owner_id in waiting]
    flag = "contended" if lock.contended else "open"
    return (
        f"| {flag}, held by {', '.join(holders) or 'no one'}; waiting: {', '.join(waiters) or '-'}"
    )
