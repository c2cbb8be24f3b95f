"""All that can happen next: clients take their steps, one request at a time, and things go wrong.

A state is a tuple of numbers: the lock's item, the queue, the epoch, the faults that are left, and
how far each client is.
"""

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
from tests.model.request_names import DESCRIBE, PUSH, Names
from tests.model.table import Outcome, Table

State = tuple[int, ...]
FIRST_CLIENT: Final = 4
"""Before the clients, a state has the lock's item, the queue, the epoch and the faults left."""
_REPEATABLE: Final = {"update", "delete"}


class Move(NamedTuple):
    """One step: where it leads, who took it (a place in the state), its request, and what broke."""

    to: State
    who: int
    call: int
    fault: int


class World:
    """A table, its clients, and the faults that may happen.

    The last client is a newcomer that takes no steps by itself, see `Healing`.
    """

    def __init__(self, clients: tuple[Client, ...], faults: Faults, names: Names) -> None:
        most = max(client.limit for client in clients)
        clients = (*clients, Client(name="newcomer", waits=False, limit=most))
        self.clients = clients
        self.budget = Budget(faults)
        self.table = Table()
        self.progress = Progress(clients, self.table, names)
        self.start: State = (0, 0, 0, 0, *self.progress.first())
        self._outcomes: dict[tuple[int, int, int], Outcome] = {}
        self._pushed = {outcome: self.table.answer_number(outcome) for outcome in Delivery}
        self._liveness = {value: self.table.answer_number(Execution(value)) for value in Liveness}

    def moves(self, state: State) -> list[Move]:
        """Everything that may happen next."""
        found: list[Move] = []
        epoch, rest = state[2], state[3]
        fails = not self.budget.exhausted(rest)
        for at in range(FIRST_CLIENT, len(state) - 1):
            for number in self.progress.starts(state[at], epoch):
                found.append(self.step(state, at, number))
                if fails:
                    self._go_wrong(state, at, number, found)
            if fails:
                self._end_early(state, at, found)
        left = self.budget.spend(rest, EPOCH)
        if left != NONE:
            found.append(Move((*state[:2], epoch + 1, left, *state[4:]), NONE, NONE, EPOCH))
        return found

    def step(self, state: State, at: int, number: int) -> Move:
        """A client's next request, and nothing goes wrong."""
        asked, after, answer = self._ask(state, number)
        heard = self.progress.answered(number, answer, state[2])
        return Move(_with(after, at, heard), at, asked, NONE)

    def _ask(self, state: State, number: int) -> tuple[int, State, int]:
        """Number of the request, the state when it has happened, number of the answer."""
        asked = self.progress.known[number].call
        assert asked is not None
        call = self.progress.calls[asked]
        if call.method == PUSH:
            return asked, *self._push(state, *call.payload)
        if call.method == DESCRIBE:
            return asked, state, self._liveness[self._liveness_of(state, call.payload)]
        done = self.apply(state[0], state[1], asked)
        return asked, (done.state, done.queue, *state[2:]), done.answer

    def apply(self, state: int, queue: int, asked: int) -> Outcome:
        """Does a request to the table."""
        key = (state, queue, asked)
        found = self._outcomes.get(key)
        if found is None:
            call = self.progress.calls[asked]
            counts = call.method == "count"
            found = self.table.apply(state, queue, call.payload, counts=counts)
            self._outcomes[key] = found
        return found

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

    def _go_wrong(self, state: State, at: int, number: int, found: list[Move]) -> None:
        """The same request again, with each fault that may still happen to it."""
        rest, progress = state[3], self.progress
        asked = progress.known[number].call
        assert asked is not None
        lost = self.budget.spend(rest, LOST_REPLY)
        if lost != NONE:
            _, after, _ = self._ask(state, number)
            anew = progress.number(progress.known[number].local.again())
            found.append(Move(_with(_spent(after, lost), at, anew), at, asked, LOST_REPLY))
        method = progress.calls[asked].method
        undelivered = self.budget.spend(rest, LOST_PUSH)
        if method == PUSH and undelivered != NONE:
            heard = progress.answered(number, self._pushed[Delivery.UNKNOWN], state[2])
            found.append(Move(_with(_spent(state, undelivered), at, heard), at, asked, LOST_PUSH))
        again = self.budget.spend(rest, REPEAT)
        if method in _REPEATABLE and again != NONE:
            first = self.apply(state[0], state[1], asked)
            second = self.apply(first.state, first.queue, asked)
            heard = progress.answered(number, second.answer, state[2])
            after = (second.state, second.queue, *state[2:])
            found.append(Move(_with(_spent(after, again), at, heard), at, asked, REPEAT))

    def _end_early(self, state: State, at: int, found: list[Move]) -> None:
        known = self.progress.known[state[at]]
        local = known.local
        if local.status in OVER or local.status is Status.IDLE or local.orphaned:
            return
        left = self.budget.spend(state[3], CRASH)
        if left != NONE:
            dead = self.progress.number(local.dead())
            found.append(Move(_with(_spent(state, left), at, dead), at, NONE, CRASH))
        left = self.budget.spend(state[3], ORPHAN)
        if left != NONE and known.call is not None:
            call = self.progress.calls[known.call]
            orphan = self.progress.number(local._replace(orphaned=True), call)
            found.append(Move(_with(_spent(state, left), at, orphan), at, NONE, ORPHAN))


def _with(state: State, at: int, number: int) -> State:
    return (*state[:at], number, *state[at + 1 :])


def _spent(state: State, rest: int) -> State:
    return (*state[:3], rest, *state[4:])
