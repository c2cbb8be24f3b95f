"""After a fault, when no operation is under way: does one more call set the lock going again?

This is tried in every such state that the search reaches. If a client died, time passes first,
until all leases are over; a workflow that runs holds on, because Step Functions is asked.
"""

from __future__ import annotations

from tests.model.contention.clients import CRASH, ORPHAN, OVER, Local, Status
from tests.model.contention.transitions import FIRST_CLIENT, State, World
from tests.model.replay import next_epoch


class Recovery:
    """Tries the next call of each client that sleeps, and that of a newcomer that does not wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limits = {client.owner_id: client.limit for client in world.clients}

    def works(self, state: State) -> bool:
        """Whether each of these calls, and all of them one after another, do what they must."""
        if self._world.budget.spent(state[2], CRASH, ORPHAN):
            state = (state[0], next_epoch(state[1]), *state[2:])
        sleepers = [at for at in self._clients(state) if self._status(state, at) is Status.ASLEEP]
        newcomer = len(state) - 1
        if not sleepers:
            owner = self._world.clients[-1].owner_id
            is_free = self._has_room(state, owner) and not self._dead_ahead(state, owner)
            after = self._call(state, newcomer)
            return self._status(after, newcomer) is Status.WORKING or not is_free
        if not all(self._advances(state, self._call(state, at), at) for at in sleepers):
            return False
        if not self._advances(state, self._call(state, newcomer), newcomer):
            return False
        for at in sleepers:
            if self._status(state, at) is Status.ASLEEP:
                state = self._call(state, at)
        return self._blocked(state, self._heads(state, None))

    def _advances(self, before: State, after: State, caller: int) -> bool:
        """Whether the oldest waiter alive was granted the lock, if there was a permit for it."""
        client = self._world.clients[caller - FIRST_CLIENT]
        owner = client.owner_id
        if self._world.tables.lock(before[0]).state.holder(owner) is not None:
            return self._status(after, caller) is Status.WORKING
        heads = self._heads(before, caller)
        if self._blocked(before, heads):
            return True
        lock = self._world.tables.lock(before[0]).state
        if lock.has_room(client.limit) and not lock.has_room(self._limits[heads[0]]):
            # A caller with room of its own evicts no one: the oldest waiter does when it polls.
            return True
        return self._world.tables.lock(after[0]).state.holder(heads[0]) is not None

    def _heads(self, state: State, caller: int | None) -> list[str]:
        """Owners that live and wait, from the oldest on.

        Of those that poll only the one that asks now, and only if no one else waits: it is late.
        """
        lock = self._world.tables.lock(state[0])
        alive = [
            (at, client)
            for at, client in zip(self._clients(state), self._world.clients, strict=False)
            if client.owner_id in lock.waiting and self._status(state, at) not in OVER
        ]
        alive.sort(key=lambda one: lock.order_of(one[1].owner_id))
        told = [client.owner_id for _, client in alive if client.pushed]
        return told or [client.owner_id for at, client in alive if at == caller]

    def _blocked(self, state: State, heads: list[str]) -> bool:
        """Whether the oldest must wait on, because so many hold and live."""
        if not heads or not self._has_room(state, heads[0]):
            return True
        return self._dead_ahead(state, heads[0])

    def _dead_ahead(self, state: State, owner_id: str) -> bool:
        """Whether a dead workflow waits before this owner for fewer to hold than do.

        No one knows that it is dead before the lock is handed to it.
        """
        lock = self._world.tables.lock(state[0])
        for at, client in zip(self._clients(state), self._world.clients, strict=False):
            waiter = client.owner_id
            ahead = waiter in lock.waiting and (
                owner_id not in lock.waiting or lock.order_of(waiter) < lock.order_of(owner_id)
            )
            is_dead = self._status(state, at) in OVER
            if ahead and is_dead and client.pushed and not self._has_room(state, waiter):
                return True
        return False

    def _has_room(self, state: State, owner_id: str) -> bool:
        """Whether this owner may come in, once the dead are out."""
        lock = self._world.tables.lock(state[0]).state
        limits = [
            client.limit
            for at, client in zip(self._clients(state), self._world.clients, strict=False)
            if lock.holder(client.owner_id) is not None and self._status(state, at) not in OVER
        ]
        ceiling = [] if lock.ceiling is None else [lock.ceiling.limit or 0]
        return len(limits) < min([self._limits[owner_id], *limits, *ceiling])

    def _call(self, state: State, at: int) -> State:
        """The client's acquire from beginning to end, while no one else moves."""
        progress = self._world.progress
        local: Local = progress.known[state[at]].local
        begun = progress.number(local.at(Status.ACQUIRING, calls=local.calls + 1))
        state = (*state[:at], begun, *state[at + 1 :])
        while progress.known[state[at]].active:
            (number,) = progress.starts(state[at], state[1])
            state = self._world.step(state, at, number).to
        return state

    def _status(self, state: State, at: int) -> Status:
        return self._world.progress.known[state[at]].local.status

    def _clients(self, state: State) -> range:
        return range(FIRST_CLIENT, len(state) - 1)
