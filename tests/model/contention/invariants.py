"""What must hold of every table, of every change of one, and of every state of the clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cache

from fairlock.clock import is_over
from fairlock.protocol.model import Holder, LockState
from tests.model.contention.clients import OVER, Client, Status
from tests.model.contention.transitions import FIRST_CLIENT, Move, State, World
from tests.model.numbered_tables import LockOfTable
from tests.model.replay import TICKS, Names, next_epoch, time_ms
from tests.model.scene import Fault, Scene

# After a fault, when no operation is under way: does one more call set the lock going again?
#
# This is tried in every such state that the search reaches. If a client died, time passes first,
# until all leases are over; a workflow that runs holds on, because Step Functions is asked.


class Recovery:
    """Tries the next call of each client that sleeps, and that of a newcomer that does not wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limits = {client.owner_id: client.limit for client in world.clients}

    def works(self, state: State) -> bool:
        """Whether each of these calls, and all of them one after another, do what they must."""
        if self._world.has_met(state, Fault.CRASH, Fault.ORPHAN):
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
        local = self._world.local(state, at)
        begun = progress.number(local.at(Status.ACQUIRING, calls=local.calls + 1))
        state = (*state[:at], begun, *state[at + 1 :])
        while progress.known[state[at]].active:
            (number,) = progress.starts(state[at], state[1])
            state = self._world.step(state, at, number).to
        return state

    def _status(self, state: State, at: int) -> Status:
        return self._world.local(state, at).status

    def _clients(self, state: State) -> range:
        return range(FIRST_CLIENT, len(state) - 1)


class Invariant(StrEnum):
    """What the protocol guarantees."""

    LIMIT = "no more hold than the limit of any holder, and all holders are counted"
    CEILING = "no grant goes above the ceiling"
    LIFTED = "a ceiling that its operator has lifted stays lifted"
    IN_FORCE = "the limit in force is never above the limit of a holder"
    TOKENS = "a token is issued once, and tokens rise"
    END = "the end of a grant never moves back"
    ORDER = "grants come in the order of queueing"
    EVICTED = (
        "only a holder whose lease is over is evicted, and never a workflow that runs; a release "
        "by force takes out the grant that was named"
    )
    TOLD = (
        "a client that was told that it holds the lock holds it, with that token, unless that "
        "grant was released by force"
    )
    UNTOLD = "a waiter that was handed the lock is told, if no push was lost"
    QUEUE = "a waiter is in the queue only while the lock is contended, and is not a holder"
    WAKE_UP = "no one waits while a permit is free for it, or while the lock is not contended"
    ENDED = "a client that released, gave up or was refused holds nothing"
    GONE = "a client that released, gave up or was refused waits for nothing"
    ANSWER = "a holder that releases is not told that it does not hold"
    FENCED = "only a client that released before is told so"
    NEWEST = "no version is granted after a higher one was granted, and its owner told"
    SUPERSEDED = "a version is refused only if the owner of a higher one was told of its grant"
    ENDLESS = "every call comes to an end by itself"
    HEALS = "when the leases of the dead are over, one more call sets the lock going again"


_LOSE_ANSWERS = (Fault.LOST_REPLY, Fault.COPY, Fault.LATE_CALL)
_NEED_RECOVERY = (Fault.CRASH, Fault.ORPHAN, Fault.LOST_PUSH, *_LOSE_ANSWERS)


class CheckedWorld(World):
    """Checks its states and moves; remembers its findings on tables and clients."""

    def __init__(self, scene: Scene, names: Names) -> None:
        super().__init__(scene, names)
        self._limits = {client.owner_id: client.limit for client in self.clients}
        self._ages = {client.owner_id: i for i, client in reversed([*enumerate(self.clients)])}
        self._forgers = {client.owner_id for client in self.clients if client.forges}
        self._table, self._change = cache(self._in_table), cache(self._by_change)
        self._client = cache(self._in_client)
        self._recovery = Recovery(self)
        self._versions = {
            at: client.version
            for at, client in enumerate(self.clients, start=FIRST_CLIENT)
            if client.version is not None
        }

    # --- tables and changes of them

    def broken_by(self, state: State, move: Move) -> Invariant | None:
        before, after, instant = state[0], move.to[0], move.to[1]
        if before == after:
            return None
        found, evicted = self._change(before, after, instant)
        early = evicted and any(self._runs(state, owner) for owner in evicted)
        return found or (self.pick((Invariant.EVICTED, False)) if early else None)

    def _by_change(
        self, table: int, next_table: int, instant: int
    ) -> tuple[Invariant | None, list[str]]:
        """What a change of the table breaks, and whom it evicts."""
        before, after = self.tables.lock(table), self.tables.lock(next_table)
        evicted = _evicted(before.state, after.state, instant)
        return self._broken_by_change(before, after, instant), evicted

    def _broken_by_change(
        self, before: LockOfTable, after: LockOfTable, instant: int
    ) -> Invariant | None:
        old, new = before.state, after.state
        if any(_ends_earlier(holder, new) for holder in old.holders):
            return self.pick((Invariant.END, False))
        tokens = {h.owner_id: h.fencing_token for h in old.holders}
        granted = [h for h in new.holders if tokens.get(h.owner_id) != h.fencing_token]
        if not granted:
            changed = new.last_ceiling != old.last_ceiling
            stands = new.fencing_token == old.fencing_token
            return self.pick((Invariant.TOKENS, stands or changed))
        last = new.fencing_token
        rising = last > old.fencing_token and [h.fencing_token for h in granted] == [last]
        me = granted[0].owner_id
        ahead: Sequence[str] = before.waiting
        if me in before.waiting:
            arrived = before.waiting[: before.waiting.index(me)]
            ahead = [owner for owner in arrived if self._is_before(owner, me, before)]
        return self.pick(
            (Invariant.CEILING, new.held <= _ceiling(new)),
            (Invariant.TOKENS, rising and me not in tokens),
            (Invariant.ORDER, not any(_still_asks(after, owner, instant) for owner in ahead)),
        )

    def _is_before(self, owner_id: str, other_id: str, lock: LockOfTable) -> bool:
        """Whether a waiter came first; the place of one that forges its ticket tells nothing."""
        if other_id in self._forgers:
            return self._ages[owner_id] < self._ages[other_id]
        return lock.order_of(owner_id) < lock.order_of(other_id)

    def _runs(self, state: State, owner_id: str) -> bool:
        at = FIRST_CLIENT + self._ages[owner_id]
        local = self.local(state, at)
        return local.status is not Status.DEAD and not local.orphaned

    # --- states

    def broken_in(self, state: State) -> Invariant | None:
        table, instant = state[:2]
        found = self._table(table)
        lost = self.has_met(state, *_LOSE_ANSWERS)
        for number in state[FIRST_CLIENT:-1]:
            found = found or self._client(table, instant, number, lost)
        return found or (self._newest_only(state) if self._versions else None)

    def _newest_only(self, state: State) -> Invariant | None:
        lock = self.tables.lock(state[0]).state
        for at, version in self._versions.items():
            local, mine = self.local(state, at), lock.holder(self._owner(at))
            granted = local.told if mine is None else mine.fencing_token
            higher = [other for other, v in self._versions.items() if v > version]
            told = [self.local(state, other).told for other in higher]
            is_refused = local.status is Status.SUPERSEDED
            found = self.pick(
                (Invariant.NEWEST, not any(0 < token < granted for token in told)),
                (
                    Invariant.SUPERSEDED,
                    not is_refused or any(self._knows(state, lock, other) for other in higher),
                ),
            )
            if found is not None:
                return found
        return None

    def _knows(self, state: State, lock: LockState, at: int) -> bool:
        """Whether a client was told of a grant, or has one and will be told, because it lives."""
        local = self.local(state, at)
        lives = local.status not in (Status.DEAD, Status.IDLE)
        return bool(local.told) or (lives and lock.holder(self._owner(at)) is not None)

    def _owner(self, at: int) -> str:
        return self.clients[at - FIRST_CLIENT].owner_id

    def _in_table(self, table: int) -> Invariant | None:
        state, waiting, _ = self.tables.lock(table)
        tokens = [h.fencing_token for h in state.holders]
        lowest = min((self._limits[h.owner_id] for h in state.holders), default=math.inf)
        return self.pick(
            (Invariant.LIMIT, state.held == len(state.holders) <= lowest),
            (Invariant.IN_FORCE, state.limit <= lowest),
            (Invariant.TOKENS, len({*tokens}) == len(tokens)),
            (Invariant.QUEUE, state.contended or not waiting),
            (Invariant.QUEUE, not any(state.holder(owner) for owner in waiting)),
        )

    def _in_client(self, table: int, instant: int, number: int, lost: bool) -> Invariant | None:  # noqa: FBT001 - a part of the key
        lock, waiting, _ = self.tables.lock(table)
        local = self.progress.known[number].local
        client = self.clients[local.client]
        status = local.status
        sure = client.pushed or instant < TICKS
        mine = lock.holder(client.owner_id)
        working = status in (Status.WORKING, Status.RENEWING) and not local.orphaned and sure
        last = lock.last_forced_release
        # A client that gave up may have been handed the lock, and never told of it.
        forced = last is not None and local.told in (0, last.fencing_token)
        ended = status in (Status.DONE, Status.REFUSED, Status.SUPERSEDED, Status.NOT_HELD)
        superseded = lock.supersedes(client.version)  # Its item counts as that of a dead waiter.
        return self.pick(
            (Invariant.TOLD, not working or forced or (mine and mine.fencing_token) == local.told),
            (Invariant.LIFTED, not (ended and _lifts(client)) or lock.ceiling is None),
            (Invariant.FENCED, status is not Status.FENCED),
            (Invariant.ENDLESS, status is not Status.ENDLESS),
            (Invariant.ENDED, not ended or mine is None),
            (Invariant.GONE, not ended or superseded or client.owner_id not in waiting),
            (Invariant.ANSWER, status is not Status.NOT_HELD or forced or lost or not sure),
        )

    def broken_at_rest(self, state: State, _moves: Sequence[Move]) -> Invariant | None:
        """The first that does not hold while no operation is under way: sleepers must be told."""
        known = self.progress.known
        if any(known[number].active for number in state[FIRST_CLIENT:-1]):
            return None
        if self.has_met(state, *_NEED_RECOVERY):
            heals = Invariant.HEALS not in self.scene.invariants or self._recovery.works(state)
            return self.pick((Invariant.HEALS, heals))
        seen = self.tables.lock(state[0])
        lock, head = seen.state, min(seen.waiting, key=seen.order_of, default=None)
        untold = (
            self.local(state, at).status is Status.ASLEEP
            and client.pushed
            and lock.holder(client.owner_id) is not None
            for at, client in enumerate(self.clients, start=FIRST_CLIENT)
        )
        return self.pick(
            (Invariant.WAKE_UP, head is None or not self._has_room(lock, head)),
            (Invariant.WAKE_UP, head is None or lock.contended),
            (Invariant.UNTOLD, not any(untold)),
        )

    def _has_room(self, lock: LockState, owner: str) -> bool:
        inside = [holder.owner_id for holder in lock.holders]
        lowest = min(self._limits[one] for one in (owner, *inside))
        return lock.held < min(lowest, _ceiling(lock))


def _ceiling(lock: LockState) -> float:
    return math.inf if lock.ceiling is None else lock.ceiling.limit or 0


def _lifts(client: Client) -> bool:
    return bool(client.sets) and client.sets[-1] is None


def _still_asks(lock: LockOfTable, owner_id: str, instant: int) -> bool:
    """Whether an owner waits that has not been away for too long."""
    now_ms = time_ms(instant)
    place = lock.places.get(owner_id)
    return place is not None and not is_over(place.expires_at_ms, date_ms=now_ms)


def _ends_earlier(holder: Holder, new: LockState) -> bool:
    """Whether a grant that goes on has an earlier end than before."""
    after = new.holder(holder.owner_id)
    if after is None or after.fencing_token != holder.fencing_token:
        return False
    return after.expires_at_ms < holder.expires_at_ms


def _evicted(old: LockState, new: LockState, instant: int) -> list[str]:
    """Owners that lost their permit before their lease was over, and did not give it back.

    Nor was that grant released by force.
    """
    now_ms = time_ms(instant)
    last = new.last_forced_release
    forced = None if last is None else last.fencing_token
    return [
        holder.owner_id
        for holder in old.holders
        if new.holder(holder.owner_id) is None
        and holder.owner_id != new.last_released
        and holder.fencing_token != forced
        and not is_over(holder.expires_at_ms, date_ms=now_ms)
    ]
