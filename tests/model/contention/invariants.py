"""What must hold: of every table, of every step on it, and of every state of the world."""

from __future__ import annotations

from enum import StrEnum

from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS, LockState
from tests.model.contention.clients import Status
from tests.model.contention.faults import CRASH, LOST_PUSH, LOST_REPLY, ORPHAN
from tests.model.contention.recovery import Healing
from tests.model.contention.transitions import FIRST_CLIENT, State, World
from tests.model.replay import EPOCH_MS, START_MS
from tests.model.table import LockReader


class Property(StrEnum):
    """The promises of the protocol."""

    LIMIT = "never more holders than the limit of the one who is granted, and all are counted"
    TOKENS = "a token is issued once, and tokens rise"
    ORDER = "grants come in the order of queueing"
    ROBBED = "only a holder whose lease is over is put out, and never a workflow that runs"
    TOLD = "who was told that it holds the lock holds it, with that token"
    UNTOLD = "a waiter that was handed the lock is told, if no push was lost"
    QUEUE = "a waiter is in the queue only while the lock is contended, and is not a holder"
    WAKE_UP = "nobody waits while a permit is free for it"
    ENDED = "who released, gave up or was refused holds nothing"
    GONE = "who released, gave up or was refused waits for nothing"
    ANSWER = "who holds and releases is not told that it does not hold"
    FENCED = "only who released before is told so"
    ENDLESS = "every call comes to an end by itself"
    HEALS = "when the leases of the dead are over, one more call sets the lock going again"


class Checker:
    """Looks at the tables, steps and states of one world; remembers what it saw of tables."""

    def __init__(self, world: World, wanted: frozenset[Property]) -> None:
        self.world = world
        self._wanted = wanted
        self._limits = {client.owner_id: client.limit for client in world.clients}
        self._ages = {client.owner_id: i for i, client in reversed([*enumerate(world.clients)])}
        self._tables: dict[tuple[int, int], Property | None] = {}
        self._changes: dict[tuple[int, int, int, int, int], tuple[Property | None, list[str]]] = {}
        self._clients: dict[tuple[int, ...], Property | None] = {}
        self._reader = LockReader(world.table)
        self._healing = Healing(world, self._reader)

    def broken_in(self, state: State) -> Property | None:
        """The first of the wanted properties that does not hold in a state."""
        return self._table(state[0], state[1]) or self._state(state)

    def _pick(self, *found: tuple[Property, bool]) -> Property | None:
        return next((p for p, holds in found if not holds and p in self._wanted), None)

    # --- tables and changes of them

    def _table(self, state: int, queue: int) -> Property | None:
        key = (state, queue)
        if key not in self._tables:
            lock, waiting = self._reader.lock(state), self._reader.owners_waiting(queue)
            tokens = [h.fencing_token for h in lock.holders]
            self._tables[key] = self._pick(
                (Property.LIMIT, lock.held == len(lock.holders)),
                (Property.TOKENS, len({*tokens}) == len(tokens)),
                (Property.QUEUE, lock.contended or not waiting),
                (Property.QUEUE, not any(lock.holder(owner) for owner in waiting)),
            )
        return self._tables[key]

    def broken_by_change(self, before: State, after: State) -> Property | None:
        """The first of the wanted properties that a change of the lock's item breaks."""
        key = (before[0], before[1], after[0], after[1], after[2])
        if key not in self._changes:
            self._changes[key] = (
                self._judge_change(before[0], before[1], after[0], after[1]),
                self._put_out(before[0], after[0], after[2]),
            )
        found, evict = self._changes[key]
        robbed = evict and any(self._runs(before, owner) for owner in evict)
        return found or (self._pick((Property.ROBBED, False)) if robbed else None)

    def _put_out(self, state: int, state_after: int, epoch: int) -> list[str]:
        """Owners that lost their place before their lease was over, and did not give it back."""
        old, new = self._reader.lock(state), self._reader.lock(state_after)
        out = [h.owner_id for h in old.holders if new.holder(h.owner_id) is None]
        return [o for o in out if o != new.last_released and not is_over(old, o, epoch)]

    def _runs(self, state: State, owner_id: str) -> bool:
        at = FIRST_CLIENT + self._ages[owner_id]
        local = self.world.progress.known[state[at]].local
        return local.status is not Status.DEAD and not local.orphaned

    def _judge_change(
        self, state: int, queue: int, state_after: int, queue_after: int
    ) -> Property | None:
        old, new = self._reader.lock(state), self._reader.lock(state_after)
        kept = {h.owner_id: h.fencing_token for h in old.holders}
        granted = [h for h in new.holders if kept.get(h.owner_id) != h.fencing_token]
        if not granted:
            return self._pick((Property.TOKENS, new.fencing_token == old.fencing_token))
        last = new.fencing_token
        rising = last > old.fencing_token and [h.fencing_token for h in granted] == [last]
        waited = self._reader.owners_waiting(queue)
        remaining = self._reader.owners_waiting(queue_after)
        me = granted[0].owner_id
        ahead = waited[: waited.index(me)] if me in waited else waited
        older = [o for o in ahead if self._ages[o] < self._ages[me]] if me in waited else ahead
        return self._pick(
            (Property.TOKENS, rising and kept.get(me) is None),
            (Property.LIMIT, new.held <= self._limits[me]),
            (Property.ORDER, not [owner for owner in older if owner in remaining]),
        )

    # --- states of the world

    def _state(self, state: State) -> Property | None:
        """The clients' own view first; then, if nobody is active, what they wait for."""
        known = self.world.progress.known
        lost = int(self.world.budget.spent(state[3], LOST_REPLY))
        resting = True
        for number in state[FIRST_CLIENT:-1]:
            resting = resting and not known[number].active
            key = (*state[:3], number, lost)
            if key not in self._clients:
                self._clients[key] = self._client(state[0], state[1], state[2], number, lost)
            if self._clients[key] is not None:
                return self._clients[key]
        return self._at_rest(state, self._reader.lock(state[0])) if resting else None

    def _client(
        self, state: int, queue: int, epoch: int, number: int, lost: int
    ) -> Property | None:
        lock = self._reader.lock(state)
        local = self.world.progress.known[number].local
        client = self.world.clients[local.client]
        status = local.status
        sure = client.pushed or epoch == 0
        if client.is_echo:
            return None
        mine = lock.holder(client.owner_id)
        waits = client.owner_id in self._reader.owners_waiting(queue)
        working = status in (Status.WORKING, Status.RENEWING) and not local.orphaned and sure
        ended = status in (Status.DONE, Status.REFUSED, Status.NOT_HELD)
        return self._pick(
            (Property.TOLD, not working or (mine and mine.fencing_token) == local.told),
            (Property.FENCED, status is not Status.FENCED),
            (Property.ENDLESS, status is not Status.ENDLESS),
            (Property.ENDED, not ended or mine is None),
            (Property.GONE, not ended or not waits),
            (Property.ANSWER, status is not Status.NOT_HELD or bool(lost) or not sure),
        )

    def _at_rest(self, state: State, lock: LockState) -> Property | None:
        """Nobody is in the middle of anything: all that sleep depend on being told."""
        budget, rest = self.world.budget, state[3]
        if budget.spent(rest, CRASH, ORPHAN, LOST_PUSH, LOST_REPLY):
            heals = Property.HEALS not in self._wanted or self._healing.works(state)
            return self._pick((Property.HEALS, heals))
        return self._pick(
            (Property.WAKE_UP, not self.free_for_head(state, lock)),
            (Property.UNTOLD, not self._untold(state, lock)),
        )

    def free_for_head(self, state: State, lock: LockState) -> bool:
        """Whether somebody waits though there is a permit for it."""
        waiting = self._reader.owners_waiting(state[1])
        head = min(waiting, key=lambda owner: self._ages[owner], default=None)
        return head is not None and lock.held < self._limits[head]

    def _untold(self, state: State, lock: LockState) -> bool:
        return any(
            self.world.progress.known[state[at]].local.status is Status.ASLEEP
            and client.pushed
            and lock.holder(client.owner_id) is not None
            for at, client in enumerate(self.world.clients, start=FIRST_CLIENT)
        )


def is_over(lock: LockState, owner_id: str, epoch: int) -> bool:
    """Whether others may consider this holder's lease over."""
    holder = lock.holder(owner_id)
    now_ms = START_MS + epoch * EPOCH_MS
    return holder is not None and holder.is_over(
        now_ms=now_ms, tolerance_ms=DEFAULT_CLOCK_TOLERANCE_MS
    )
