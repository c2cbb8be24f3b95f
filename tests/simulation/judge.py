"""The judge: knows who believes to hold what, sees each write, and notes what breaks a promise.

It uses nothing of Fairlock but the shape of items. What a holder believes is what its own code was
told: a client from its grant to its own end or its release, an execution from the answer of acquire
to its call of release or its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing.fake_table import Key
from fairlock.testing.interpreter import Item
from tests.simulation.engine import Engine

_LOCK: Final = "LOCK#"
_WAITER: Final = "WAITER#"
_PASSED_OVER_SECONDS: Final = 5.0
"""How old the read of a queue may be by which a holder hands over."""
_MOST_FINDINGS: Final = 50


@dataclass(slots=True, eq=False)
class Belief:
    """Somebody believes to hold a lock.

    Attributes:
        who: for the trace.
        lock: its name.
        limit: permits that this holder has named.
        token: the fencing token that it was told.
        since: when it was told.
        own_end: the moment until which it believes so unless something happens; by its own clocks.
        left_at: when it ceased to believe.
    """

    who: str
    lock: str
    limit: int
    token: int
    since: float
    own_end: Callable[[], float]
    left_at: float | None = None


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
        engine: time and trace.
        idle_bound: for how long a lock may be held by no living holder while somebody waits.
        findings: what broke a promise; the first 50.
        checked: how often each promise was judged.
        waits: seconds from the call to the grant.
        idle: for each lock the longest time without a holder while somebody waited.
    """

    engine: Engine
    idle_bound: float
    findings: list[Finding] = field(default_factory=list)
    checked: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    _believers: defaultdict[str, dict[Belief, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
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
        self, who: str, lock: str, *, limit: int, token: int, own_end: Callable[[], float]
    ) -> Belief:
        """An owner was told that it holds a lock."""
        now = self.engine.now
        belief = Belief(who, lock, limit, token, now, own_end)
        others = [other for other in self._believers[lock] if other.own_end() > now]
        self.checked["no more holders than the limit"] += 1
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
        believers = self._believers[belief.lock]
        if belief.limit == 1:
            for other in believers:
                if other is not belief and belief.since < other.since < belief.left_at:
                    what = f"{belief.lock}: {other.who} began while {belief.who} held"
                    self.found("no more holders than the limit", what)
        believers.pop(belief, None)
        self._look_for_idleness(belief.lock)

    def wrote(self, who: str, lock: str, token: int) -> None:
        """A data store that is guarded by the fencing token has taken a write."""
        self.checked["guarded writes"] += 1
        if token < self._accepted.get(lock, 0):
            self.found("guarded writes", f"{lock}: {who} wrote with {token}, an older token")
        self._accepted[lock] = max(token, self._accepted.get(lock, 0))

    def saw(self, key: Key, old: Item, new: Item) -> None:
        """A write of the lock table."""
        partition, sort_key = key
        if not partition.startswith(_LOCK):
            return
        lock = partition[len(_LOCK) :]
        if sort_key.startswith(_WAITER):
            self._saw_waiter(lock, sort_key, old, new)
        elif sort_key == "STATE":
            self._saw_state(lock, new)

    def holders_of(self, lock: str) -> list[int]:
        """The fencing tokens of those that hold a lock, as the table has them."""
        state = self._states.get(lock)
        return [] if state is None else [holder.fencing_token for holder in state.holders]

    def found(self, promise: str, what: str) -> None:
        """Notes a broken promise."""
        self.engine.trace("JUDGE", f"{promise}: {what}")
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(Finding(promise, self.engine.now, what))

    def require(self, promise: str, holds: object, what: str) -> None:
        """Judges something that a scenario knows."""
        self.checked[promise] += 1
        if not holds:
            self.found(promise, what)

    def _saw_state(self, lock: str, new: Item) -> None:
        state = read_state(new) if new else LockState()
        before = self._states.get(lock, LockState())
        self._states[lock] = state
        highest = self._written_token.get(lock, 0)
        owners = {holder.owner_id for holder in before.holders}
        came = [holder for holder in state.holders if holder.owner_id not in owners]
        self.checked["tokens rise"] += 1
        if state.fencing_token < highest and new:
            self.found("tokens rise", f"{lock}: from {highest} to {state.fencing_token}")
        for holder in came:
            if holder.fencing_token <= highest:
                self.found("tokens rise", f"{lock}: granted {holder.fencing_token} after {highest}")
            self.engine.trace("table", f"{lock}: granted, token {holder.fencing_token}")
        if len(state.holders) < len(before.holders) and not came:
            self.engine.trace("table", f"{lock}: {len(state.holders)} hold")
        self._written_token[lock] = max(highest, state.fencing_token)
        for holder in came:
            self._require_oldest(lock, holder.owner_id)

    def _saw_waiter(self, lock: str, sort_key: str, old: Item, new: Item) -> None:
        queue = self._queues[lock]
        if new and not old:
            self._entered[lock, sort_key] = self.engine.now
            queue[sort_key] = new
        elif new:
            queue[sort_key] = new
        else:
            queue.pop(sort_key, None)
            self._entered.pop((lock, sort_key), None)

    def _require_oldest(self, lock: str, owner_id: str) -> None:
        """Who comes in was the oldest of those that wait, and no one overtakes the queue."""
        queue = self._queues.get(lock)
        if not queue:
            return
        self.checked["first come, first served"] += 1
        now = self.engine.now
        mine = next((key for key in queue if key.endswith(owner_id)), "~")
        for sort_key, item in queue.items():
            waited = now - self._entered[lock, sort_key]
            is_live = int(item["expires_at_ms"]["N"]) > now * 1000 + 1_000
            if sort_key < mine and is_live and waited > _PASSED_OVER_SECONDS:
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
            self.idle.append(seconds)
            self.checked["no lock taken by no one"] += 1
            if seconds > self.idle_bound:
                what = f"{lock}: held by no one for {seconds:.1f} s, while others waited"
                self.found("no lock taken by no one", what)
