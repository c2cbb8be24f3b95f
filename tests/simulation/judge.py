"""The judge: knows who believes to hold what, sees each write, and notes what breaks a promise.

It uses nothing of Fairlock but the shape of items. What a holder believes is what its own code was
told: a client from its grant to its own end or its release, an execution from the answer of acquire
to its call of release or its end.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fairlock.errors import LockItemMalformed
from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.engine import Engine

_LOCK: Final = "LOCK#"
_VERSION: Final = "only_newest"
_DATA: Final = "DATA#"
_PASSED_OVER_SECONDS: Final = 1.5
"""How old the read of a queue may be by which a holder hands over: 1 s (docs/protocol.md), and the
time of its requests."""
_LONGEST_CALL_SECONDS: Final = 10.0
_PLACE_SECONDS: Final = 1.5
"""By how much a place, that is a time of entry, may be wrong (docs/protocol.md): a second, and half
of one for front ends that differ."""
_EDGES_SECONDS: Final = 2.5
"""Of AWS's time, as a caller of a pace knows it (docs/turns.md)."""


@dataclass(slots=True, eq=False)
class Belief:
    """Someone believes to hold a lock.

    Attributes:
        limit: permits that this holder has named.
        token: the fencing token that it was told.
        since: when it was told.
        own_end: the moment until which it believes so unless something happens; by its own clocks.
        left_at: when it ceased to believe.
        forced_at: when an operator released it by force: it learns that later.
    """

    who: str
    lock: str
    limit: int
    token: int
    since: float
    own_end: Callable[[], float]
    left_at: float | None = None
    forced_at: float = math.inf

    @property
    def is_forced(self) -> bool:
        """Whether it may be wrong, by the word of an operator."""
        return self.forced_at < math.inf


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise."""

    promise: str
    at: float
    what: str


@dataclass
class Judge:
    """Judges one run.

    Attributes:
        idle_bound: for how long a lock may be held by no living holder while someone waits.
        findings: what broke a promise; the first 50.
        waits: seconds from the call to the grant.
    """

    engine: Engine
    idle_bound: float
    findings: list[Finding] = field(default_factory=list)
    allowance: Callable[[str, float], float] = lambda _lock, _since: 0.0
    """Seconds that spoilt sendings about a lock have cost since then."""
    tells: Callable[[str, LockState], object] = lambda _lock, _state: None
    """Is told each state of a lock."""
    ceilings: dict[str, int] = field(default_factory=dict)
    """Of locks whose ceiling stands: from the answer to an operator until it is changed again."""
    late_seconds: float = 0.0
    stall_seconds: float = 0.0
    """For how long a handler may stand still between its read of a queue and its hand-off."""
    gone: set[str] = field(default_factory=set)
    """Owners whose release was answered: no call of theirs that comes late is granted anything."""
    ended: set[str] = field(default_factory=set)
    """Owners whose execution is over."""
    in_vain: int = 0
    """Grants to those: what the model calls a known gap. Each ends with its lease."""
    waits: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    _believers: defaultdict[str, dict[Belief, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _past: defaultdict[str, list[Belief]] = field(default_factory=lambda: defaultdict(list))
    _slots: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _waiting: Counter[str] = field(default_factory=Counter)
    _idle_since: dict[str, float] = field(default_factory=dict)
    _written_token: dict[str, int] = field(default_factory=dict)
    _accepted: dict[str, int] = field(default_factory=dict)
    _entered: dict[Key, float] = field(default_factory=dict)
    _queues: defaultdict[str, dict[str, Item]] = field(default_factory=lambda: defaultdict(dict))
    _states: dict[str, LockState] = field(default_factory=dict)

    def begins_to_wait(self, lock: str) -> float:
        """An owner asks for a lock, and will wait; returns the moment."""
        self._waiting[lock] += 1
        self._look_for_idleness(lock)
        return self.engine.now

    def ends_waiting(self, lock: str) -> None:
        """It got it, or gave up, or died."""
        self._waiting[lock] -= 1
        self._look_for_idleness(lock)

    def granted(
        self,
        who: str,
        lock: str,
        *,
        limit: int,
        token: int,
        own_end: Callable[[], float] = lambda: math.inf,
    ) -> Belief:
        """An owner was told that it holds a lock."""
        now = self.engine.now
        belief = Belief(who, lock, limit, token, now, own_end)
        others = [
            other
            for other in self._believers[lock]
            if other.own_end() > now and not other.is_forced
        ]
        allowed = min([limit, *(other.limit for other in others)])
        if len(others) >= allowed:
            held = ", ".join(f"{other.who} (token {other.token})" for other in others)
            self.found("no more holders than the limit", f"{lock}: {who} beside {held}")
        if token in {other.token for other in self._believers[lock]}:
            self.found("tokens rise", f"{lock}: token {token} of {who} was given twice")
        self._believers[lock][belief] = None
        self._look_for_idleness(lock)
        return belief

    def left(self, belief: Belief) -> None:
        """It ceases to believe so: it is about to release, it was told of a loss, or it died."""
        if belief.left_at is not None:
            return
        belief.left_at = min(self.engine.now, max(belief.since, belief.own_end()))
        believers, past = self._believers[belief.lock], self._past[belief.lock]
        if not belief.is_forced:
            self._require_room(belief, [*believers, *past])
        believers.pop(belief, None)
        past.append(belief)
        first = min((other.since for other in believers), default=self.engine.now)
        past[:] = [other for other in past if (other.left_at or 0) > first]
        self._look_for_idleness(belief.lock)

    def _require_room(self, belief: Belief, others: list[Belief]) -> None:
        """No one came in beside it, but those for whom there was room, by what is known now.

        A renewal whose answer came late may have told it only later that it still held.
        """
        left_at = belief.left_at or 0
        for other in others:
            if other is belief or other.is_forced or not belief.since < other.since < left_at:
                continue
            at = other.since
            beside = [
                each
                for each in others
                if each.since <= at
                and not each.is_forced
                and each is not belief
                and (at < each.own_end() if each.left_at is None else at < each.left_at)
            ]
            if len(beside) + 1 > min([belief.limit, *(each.limit for each in beside)]):
                what = f"{belief.lock}: {other.who} began while {belief.who} held"
                self.found("no more holders than the limit", what)

    def forced(self, lock: str, token: int) -> None:
        """An operator releases a grant by force: its owner learns that at its next heartbeat."""
        for belief in self._believers[lock]:
            if belief.token == token:
                belief.forced_at = self.engine.now

    def began_in_slot(self, pace: str, interval: float) -> None:
        """A caller begins in its slot: no more have begun than the rate allows, in any span.

        Each begins at the edge of its slot by what it knows of AWS's time: 2.5 s late at most.
        """
        slots, now = self._slots[pace], self.engine.now
        lead = now - len(slots) * interval
        latest = max(slots, default=lead)
        if lead + interval + _EDGES_SECONDS < latest:
            what = f"{pace}: {latest - lead:.1f} s ahead of the rate"
            self.found("no more than the rate", what)
        slots.append(lead)

    def wrote(self, who: str, lock: str, token: int) -> None:
        """A data store that is guarded by the fencing token has taken a write."""
        if token < self._accepted.get(lock, 0):
            self.found("guarded writes", f"{lock}: {who} wrote with {token}, an older token")
        self._accepted[lock] = max(token, self._accepted.get(lock, 0))

    def saw(self, key: Key, old: Item, new: Item) -> None:
        partition, sort_key = key
        if partition.startswith(_DATA):
            self._saw_data(partition[len(_DATA) :], new)
        if not partition.startswith(_LOCK):
            return
        lock = partition[len(_LOCK) :]
        if sort_key.startswith("WAITER#"):
            self._saw_waiter(lock, sort_key, old, new)
        elif sort_key == "STATE":
            self._saw_state(lock, new)

    def holders_of(self, lock: str) -> list[int]:
        """The fencing tokens of those that hold a lock, as the table has them."""
        state = self._states.get(lock)
        return [] if state is None else [holder.fencing_token for holder in state.holders]

    def require_all_free(self) -> None:
        """At the end of a run no lock is held, and no one waits in any queue."""
        for lock in self._states:
            tokens = self.holders_of(lock)
            self.require("all is free at the end", not tokens, f"{lock}: held by {tokens}")
        for lock, queue in self._queues.items():
            self.require("all is free at the end", not queue, f"{lock}: {len(queue)} wait")

    def found(self, promise: str, what: str) -> None:
        self.engine.trace("JUDGE", f"{promise}: {what}")
        if len(self.findings) < 50:
            self.findings.append(Finding(promise, self.engine.now, what))

    def require(self, promise: str, holds: object, what: str) -> None:
        if not holds:
            self.found(promise, what)

    def _saw_state(self, lock: str, new: Item) -> None:
        try:
            state = read_state(new) if new else LockState()
        except LockItemMalformed as malformed:
            self.found("each item can be read", f"{lock}: {malformed}")
            return
        before = self._states.get(lock, LockState())
        self._states[lock] = state
        highest = self._written_token.get(lock, 0)
        owners = {holder.owner_id for holder in before.holders}
        came = [holder for holder in state.holders if holder.owner_id not in owners]
        if state.fencing_token < highest and new:
            self.found("tokens rise", f"{lock}: from {highest} to {state.fencing_token}")
        for holder in came:
            if holder.fencing_token <= highest:
                self.found("tokens rise", f"{lock}: granted {holder.fencing_token} after {highest}")
            self.engine.trace("table", f"{lock}: granted, token {holder.fencing_token}")
            self.in_vain += holder.owner_id in self.ended
            if holder.owner_id in self.gone:
                self.found("no grant to one that has left", f"{lock}: {holder.fencing_token}")
        if len(state.holders) < len(before.holders) and not came:
            self.engine.trace("table", f"{lock}: {len(state.holders)} hold")
        self._written_token[lock] = max(highest, state.fencing_token)
        for holder in came:
            self._require_oldest(lock, holder.owner_id, state.newest or 0)
        if came and len(state.holders) > self.ceilings.get(lock, math.inf):
            what = f"{lock}: {len(state.holders)} hold, at most {self.ceilings[lock]} may"
            self.found("no grant above a ceiling", what)
        self.tells(lock, state)

    def _saw_data(self, lock: str, new: Item) -> None:
        token, is_last = int(new["token"]["N"]), "is_last" in new
        state = self._states.get(lock, LockState())
        if state.limit == 1:
            self.wrote("a transaction", lock, token)
        is_held = any(holder.fencing_token == token for holder in state.holders)
        if not is_held and not is_last:
            self.found("guarded writes", f"{lock}: written with {token}, which does not hold")

    def _saw_waiter(self, lock: str, sort_key: str, old: Item, new: Item) -> None:
        queue = self._queues[lock]
        if new and not old:
            self._entered[lock, sort_key] = self.engine.now
            place = int(new["entered_at_ms"]["N"]) / 1000
            # A workflow comes back to the place in its claim, however late: after a redrive, too.
            if place > self.engine.now or "execution_arn" not in new:
                self._require_right_place(lock, place, sort_key)
            queue[sort_key] = new
        elif new:
            queue[sort_key] = new
        else:
            queue.pop(sort_key, None)
            self._entered.pop((lock, sort_key), None)

    def _require_right_place(self, lock: str, place: float, sort_key: str) -> None:
        """A place is AWS's time at the entry, whatever the clocks of the caller say."""
        now = self.engine.now
        # An answer that came late tells less of AWS's time; a join may be under way for long.
        spoilt = self.allowance(lock, now - _LONGEST_CALL_SECONDS)
        early, late = _PLACE_SECONDS + spoilt, _PLACE_SECONDS + spoilt + self.late_seconds
        if not now - late <= place <= now + early:
            what = f"{lock}: {sort_key} entered {place - now:+.1f} s from its place"
            self.found("places by AWS's time", what)

    def _require_oldest(self, lock: str, owner_id: str, newest: int) -> None:
        """Who comes in was the oldest of those that wait, and no one overtakes the queue.

        A version has the turn of the oldest version that waits; superseded ones have none.
        """
        queue = self._queues.get(lock)
        if not queue:
            return
        now = self.engine.now
        mine = next((key for key in queue if key.endswith(owner_id)), "~")
        if _VERSION in queue.get(mine, {}):
            mine = min(key for key, item in queue.items() if _VERSION in item)
        longest = _LONGEST_CALL_SECONDS + self.stall_seconds
        most = _PASSED_OVER_SECONDS + self.stall_seconds + self.allowance(lock, now - longest)
        for sort_key, item in queue.items():
            waited = now - self._entered[lock, sort_key]
            is_live = int(item["expires_at_ms"]["N"]) > now * 1000 + 1_000
            is_superseded = _VERSION in item and int(item[_VERSION]["N"]) < newest
            if sort_key < mine and is_live and waited > most and not is_superseded:
                what = (
                    f"{lock}: {owner_id} was granted before {sort_key}, in the queue {waited:.1f} s"
                )
                self.found("first come, first served", what)
                return

    def _look_for_idleness(self, lock: str) -> None:
        now = self.engine.now
        is_idle = self._waiting[lock] > 0 and not self._believers[lock]
        since = self._idle_since.get(lock)
        if is_idle and since is None:
            self._idle_since[lock] = now
        elif not is_idle and since is not None:
            del self._idle_since[lock]
            seconds = now - since
            if seconds > self.idle_bound:
                what = f"{lock}: held by no one for {seconds:.1f} s, while others waited"
                self.found("no lock taken by no one", what)
