"""What may happen next among clients that contend for one lock: a request of one, or a fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.lock_table import Written
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Refusal
from tests.model.contention.clients import (
    COPY,
    CRASH,
    EPOCH,
    HELD_BACK,
    LANDS,
    LATE_CALL,
    LATE_JOIN,
    LOST_PUSH,
    LOST_REPLY,
    NONE,
    ORPHAN,
    OVER,
    REPEAT,
    Budget,
    Client,
    Faults,
    Local,
    Status,
)
from tests.model.contention.progress import Progress
from tests.model.numbered_tables import EMPTY, NumberedTables
from tests.model.replay import DESCRIBE, PUSH, Names, next_epoch

State = tuple[int, ...]
"""Numbers: the table, the instant, the faults that are left, what is on the wire, and how far each
client is."""
WIRE: Final = 3
"""Where a state has the request that is still on its way: its number and 1; 0 if there is none."""
FIRST_CLIENT: Final = 4
_REPEATABLE: Final = {"update", "delete"}
_WRITES: Final = {*_REPEATABLE, "transact"}
_KEEPS_ITS_PLACE: Final = "attribute_exists"
"""How the condition of a join begins whose waiter is there already."""


class Move(NamedTuple):
    """One step.

    Attributes:
        to: where it leads.
        by: whose it is, as a place in the state; NONE if time passes.
        call: the number of its request; NONE if it has none.
        fault: what goes wrong.
    """

    to: State
    by: int
    call: int
    fault: int


class World:
    """A table, its clients, and the faults that may happen.

    The last client is a newcomer that takes no steps by itself, see `Recovery`.
    """

    def __init__(
        self,
        clients: tuple[Client, ...],
        faults: Faults,
        names: Names,
        begin: tuple[str, ...] = (),
    ) -> None:
        most = max(client.limit for client in clients)
        clients = (*clients, Client(name="newcomer", waits=False, limit=most))
        self.clients = clients
        self.budget = Budget(faults)
        self._late_joins = faults.late_joins > 0
        self.tables = NumberedTables(by_arrival=True)
        self.progress = Progress(clients, self.tables, names)
        self.start: State = (EMPTY, 0, 0, 0, *self.progress.first())
        self._pushed = {outcome: self.tables.answer_number(outcome) for outcome in Delivery}
        self._written = self.tables.answer_number(Written({}))
        self._liveness = {value: self.tables.answer_number(Execution(value)) for value in Liveness}
        for name in begin:
            self.start = self._after_first_operation(self.start, name)

    def moves(self, state: State) -> list[Move]:
        """Everything that may happen next."""
        found: list[Move] = []
        table, instant, rest, wire = state[:FIRST_CLIENT]
        fails = not self.budget.exhausted(rest)
        for at in range(FIRST_CLIENT, len(state) - 1):
            for number in self.progress.starts(state[at], instant):
                found.append(self.step(state, at, number))
                if fails:
                    self._add_failures(state, at, number, found)
            if fails:
                self._add_deaths(state, at, found)
        left = self.budget.spend(rest, EPOCH)
        if left != NONE:
            later = (table, next_epoch(instant), left, *state[WIRE:])
            found.append(Move(later, NONE, NONE, EPOCH))
        if wire:
            found.append(self._landed(state))
        return found

    def _after_first_operation(self, state: State, name: str) -> State:
        at = FIRST_CLIENT + self.progress.index_of[name]
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
        asked, after, answer = self._ask(state, number)
        answered = self.progress.answered(number, answer, state[1])
        after = _with(after, at, answered)
        if not self._late_joins and self._confirms(answered):
            return self.step(after, at, answered)._replace(call=asked)
        return Move(after, at, asked, NONE)

    def _confirms(self, number: int) -> bool:
        call = self.progress.known[number].call
        return call is not None and self.progress.calls[call].name == "confirm_join"

    def request_names(self) -> frozenset[str]:
        return frozenset(call.name for call in self.progress.calls)

    def _ask(self, state: State, number: int) -> tuple[int, State, int]:
        """Number of the request, the state when it has happened, number of the answer."""
        asked = self.progress.known[number].call
        assert asked is not None
        call = self.progress.calls[asked]
        if call.method == PUSH:
            return asked, *self._push(state, *call.payload)
        if call.method == DESCRIBE:
            return asked, state, self._liveness[self._liveness_of(state, call.payload)]
        if self.progress.known[number].local.half_joined:
            return asked, (self.tables.show_late(state[0]), *state[1:]), self._written
        done = self.tables.apply(state[0], call)
        return asked, (done.table, *state[1:]), done.answer

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
            local = self.progress.known[state[at]].local
            if client.execution_arn == execution_arn:
                over = local.status is Status.DEAD or local.orphaned
                return Liveness.OVER if over else Liveness.RUNNING
        raise LookupError(execution_arn)

    def _add_failures(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """The same request again, with each fault that may still happen to it."""
        rest, progress = state[2], self.progress
        asked = progress.known[number].call
        assert asked is not None
        self._add_late_join(state, at, number, found)
        lost = self.budget.spend(rest, LOST_REPLY)
        if lost != NONE:
            _, after, _ = self._ask(state, number)
            anew = progress.number(progress.known[number].local.again())
            found.append(Move(_with(_spent(after, lost), at, anew), at, asked, LOST_REPLY))
        call = progress.calls[asked]
        undelivered = self.budget.spend(rest, LOST_PUSH)
        if call.method == PUSH and undelivered != NONE:
            unknown = progress.answered(number, self._pushed[Delivery.UNKNOWN], state[1])
            found.append(Move(_with(_spent(state, undelivered), at, unknown), at, asked, LOST_PUSH))
        again = self.budget.spend(rest, REPEAT)
        if call.method in _REPEATABLE and again != NONE:
            second = self.tables.apply(self.tables.apply(state[0], call).table, call)
            answered = progress.answered(number, second.answer, state[1])
            after = (second.table, *state[1:])
            found.append(Move(_with(_spent(after, again), at, answered), at, asked, REPEAT))

        self._add_copies(state, at, number, found)
        self._add_late_calls(state, at, number, found)

    def _add_late_calls(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """This invocation stays on the wire, for at least as long as a time-out.

        Its caller gives it up and calls again. The function is invoked at any time later.
        """
        local, left = self.progress.known[number].local, self.budget.spend(state[2], LATE_CALL)
        if left == NONE or local.status is not Status.ACQUIRING or local.answers or local.orphaned:
            return
        name = self.clients[local.client].name
        for i, client in enumerate(self.clients):
            if client.late_call_of == name:
                late = Local(i, Status.ACQUIRING, calls=1, orphaned=True, called_at=local.called_at)
                waited = (state[0], state[1] + 1, left, *state[WIRE:])
                waited = _with(waited, FIRST_CLIENT + i, self.progress.number(late))
                anew = self.progress.number(local.again())
                found.append(Move(_with(waited, at, anew), at, NONE, LATE_CALL))

    def _add_copies(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """A sending of this write stays on the wire, for at least as long as a time-out.

        botocore sends it again, and the caller gets the answer to that sending; or the caller gives
        up, and begins the operation again. DynamoDB remembers the request token of a transaction
        that was committed, so a copy of that one changes nothing.
        """
        progress, left = self.progress, self.budget.spend(state[2], COPY)
        asked = progress.known[number].call
        assert asked is not None
        call = progress.calls[asked]
        if left == NONE or state[WIRE] or call.method not in _WRITES:
            return
        waited = (state[0], state[1] + 1, left, asked + 1, *state[FIRST_CLIENT:])
        anew = progress.number(progress.known[number].local.again())
        found.append(Move(_with(waited, at, anew), at, asked, HELD_BACK))
        done = self.tables.apply(state[0], call)
        if call.method != "transact" or done.answer != self._written:
            sent_again = self.step(waited, at, number)
            found.append(sent_again._replace(fault=COPY))

    def _landed(self, state: State) -> Move:
        """The request on the wire arrives; no one waits for its answer."""
        asked = state[WIRE] - 1
        done = self.tables.apply(state[0], self.progress.calls[asked])
        return Move((done.table, *state[1:WIRE], 0, *state[FIRST_CLIENT:]), NONE, asked, LANDS)

    def _add_late_join(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """A transaction that joins is seen by a query only in part, until its caller goes on."""
        progress, left = self.progress, self.budget.spend(state[2], LATE_JOIN)
        known = progress.known[number]
        assert known.call is not None
        call = progress.calls[known.call]
        if (
            left == NONE
            or call.name != "join_queue"
            or call.payload.other.condition.startswith(_KEEPS_ITS_PLACE)
        ):
            return
        done = self.tables.apply(state[0], call)
        if done.answer != self._written or known.local.half_joined:
            return
        late = self.tables.hide(done.table, call.payload.other.item)
        half = progress.number(known.local._replace(half_joined=True), call)
        after = _spent((late, *state[1:]), left)
        found.append(Move(_with(after, at, half), at, known.call, LATE_JOIN))

    def _add_deaths(self, state: State, at: int, found: list[Move]) -> None:
        known = self.progress.known[state[at]]
        local = known.local
        if local.status in OVER or local.status is Status.IDLE or local.orphaned:
            return
        if local.half_joined:
            return
        left = self.budget.spend(state[2], CRASH)
        if left != NONE:
            dead = self.progress.number(local.dead()._replace(told=self._knew(state, local)))
            found.append(Move(_with(_spent(state, left), at, dead), at, NONE, CRASH))
        left = self.budget.spend(state[2], ORPHAN)
        if left != NONE and known.call is not None:
            call = self.progress.calls[known.call]
            orphan = self.progress.number(local._replace(orphaned=True), call)
            found.append(Move(_with(_spent(state, left), at, orphan), at, NONE, ORPHAN))

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


def _with(state: State, at: int, number: int) -> State:
    return (*state[:at], number, *state[at + 1 :])


def _spent(state: State, rest: int) -> State:
    return (*state[:2], rest, *state[WIRE:])


_FAULTS = {
    CRASH: "dies",
    ORPHAN: "dies, but its handler goes on",
    LOST_REPLY: "happens, but the caller is not told and begins again",
    LOST_PUSH: "is lost",
    REPEAT: "is sent twice",
    LATE_JOIN: "happens, but queries do not show its waiter yet",
    COPY: "is sent again after its time-out; the first sending stays on the wire",
    HELD_BACK: "stays on the wire; the caller begins again after its time-out",
    LATE_CALL: "calls, and calls again after its time-out; the first call stays on the wire",
    EPOCH: "time passes, until all leases of before are over",
}


def tell(world: World, way: Iterable[tuple[State, Move]]) -> Iterator[str]:
    """The steps, each with the lock and the queue after it."""
    for number, (before, move) in enumerate(way, start=1):
        yield f"{number:3}. {_event(world, before, move):76} {_table(world, move.to)}"


def _event(world: World, before: State, move: Move) -> str:
    if move.fault == LANDS:
        return f"the late copy of {world.progress.calls[move.call].name} lands"
    if move.by == NONE:
        return _FAULTS[move.fault]
    at = move.by
    client = world.clients[at - FIRST_CLIENT]
    status = world.progress.known[move.to[at]].local.status
    then = "" if before[at] == move.to[at] else f" → {status.value}"
    if move.call == NONE:
        return f"{client.name} {_FAULTS[move.fault]}"
    name = world.progress.calls[move.call].name
    fault = f", {_FAULTS[move.fault]}" if move.fault != NONE else ""
    moved = before[0] != move.to[0]
    others = [
        f", {world.clients[i - FIRST_CLIENT].name} is told"
        for i in range(FIRST_CLIENT, len(before))
        if i != at and before[i] != move.to[i]
    ]
    effect = "" if moved or others else " (changes nothing)"
    return f"{client.name}: {name}{fault}{''.join(others)}{effect}{then}"


def _table(world: World, state: State) -> str:
    lock, waiting, _ = world.tables.lock(state[0])
    names = {client.owner_id: client.name for client in reversed(world.clients)}
    holders = [f"{names[h.owner_id]}#{h.fencing_token % 1000}" for h in lock.holders]
    waiters = [names[owner_id] for owner_id in waiting]
    flag = "contended" if lock.contended else "open"
    return (
        f"| {flag}, held by {', '.join(holders) or 'no one'}; waiting: {', '.join(waiters) or '-'}"
    )
