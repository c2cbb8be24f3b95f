"""What may happen next among clients that contend for one lock: a request of one, or a fault."""

from __future__ import annotations

from typing import Final, NamedTuple

from leasehold.protocol.model import Grant, Liveness
from leasehold.workflows.engine import Delivery, Execution
from tests.model.contention.clients import OVER, Client, Status
from tests.model.contention.faults import (
    CRASH,
    EPOCH,
    LOST_PUSH,
    LOST_REPLY,
    NONE,
    ORPHAN,
    REPEAT,
    Budget,
    Faults,
)
from tests.model.contention.progress import Progress
from tests.model.numbered_tables import EMPTY, NumberedTables
from tests.model.request_names import DESCRIBE, PUSH, Names

State = tuple[int, ...]
"""Numbers: the table, the epoch, the faults that are left, and how far each client is."""
FIRST_CLIENT: Final = 3
_REPEATABLE: Final = {"update", "delete"}


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

    def __init__(self, clients: tuple[Client, ...], faults: Faults, names: Names) -> None:
        most = max(client.limit for client in clients)
        clients = (*clients, Client(name="newcomer", waits=False, limit=most))
        self.clients = clients
        self.budget = Budget(faults)
        self.tables = NumberedTables(by_arrival=True)
        self.progress = Progress(clients, self.tables, names)
        self.start: State = (EMPTY, 0, 0, *self.progress.first())
        self._pushed = {outcome: self.tables.answer_number(outcome) for outcome in Delivery}
        self._liveness = {value: self.tables.answer_number(Execution(value)) for value in Liveness}

    def moves(self, state: State) -> list[Move]:
        """Everything that may happen next."""
        found: list[Move] = []
        table, epoch, rest = state[:FIRST_CLIENT]
        fails = not self.budget.exhausted(rest)
        for at in range(FIRST_CLIENT, len(state) - 1):
            for number in self.progress.starts(state[at], epoch):
                found.append(self.step(state, at, number))
                if fails:
                    self._add_failures(state, at, number, found)
            if fails:
                self._add_deaths(state, at, found)
        left = self.budget.spend(rest, EPOCH)
        if left != NONE:
            later = (table, epoch + 1, left, *state[FIRST_CLIENT:])
            found.append(Move(later, NONE, NONE, EPOCH))
        return found

    def step(self, state: State, at: int, number: int) -> Move:
        """A client's next request, and nothing goes wrong."""
        asked, after, answer = self._ask(state, number)
        answered = self.progress.answered(number, answer, state[1])
        return Move(_with(after, at, answered), at, asked, NONE)

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
        done = self.tables.apply(state[0], call)
        return asked, (done.table, *state[1:]), done.answer

    def _push(self, state: State, task_token: str, grant: Grant) -> tuple[State, int]:
        known = self.progress.known
        for at in range(FIRST_CLIENT, len(state)):
            if known[state[at]].listens_to == task_token:
                local = known[state[at]].local
                told = local.at(Status.WORKING, told=grant.fencing_token)
                after = _with(state, at, self.progress.number(told))
                return after, self._pushed[Delivery.DELIVERED]
        return state, self._pushed[Delivery.GONE]

    def _liveness_of(self, state: State, execution_arn: str) -> Liveness:
        for at, client in enumerate(self.clients, start=FIRST_CLIENT):
            local = self.progress.known[state[at]].local
            if client.execution_arn == execution_arn and client.echoes is None:
                over = local.status is Status.DEAD or local.orphaned
                return Liveness.OVER if over else Liveness.RUNNING
        raise LookupError(execution_arn)

    def _add_failures(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """The same request again, with each fault that may still happen to it."""
        rest, progress = state[2], self.progress
        asked = progress.known[number].call
        assert asked is not None
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

    def _add_deaths(self, state: State, at: int, found: list[Move]) -> None:
        known = self.progress.known[state[at]]
        local = known.local
        if local.status in OVER or local.status is Status.IDLE or local.orphaned:
            return
        left = self.budget.spend(state[2], CRASH)
        if left != NONE:
            dead = self.progress.number(local.dead())
            found.append(Move(_with(_spent(state, left), at, dead), at, NONE, CRASH))
        left = self.budget.spend(state[2], ORPHAN)
        if left != NONE and known.call is not None:
            call = self.progress.calls[known.call]
            orphan = self.progress.number(local._replace(orphaned=True), call)
            found.append(Move(_with(_spent(state, left), at, orphan), at, NONE, ORPHAN))


def _with(state: State, at: int, number: int) -> State:
    return (*state[:at], number, *state[at + 1 :])


def _spent(state: State, rest: int) -> State:
    return (*state[:2], rest, *state[FIRST_CLIENT:])
