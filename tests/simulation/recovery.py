"""How long a lock is of no use to anyone, while clients wait for it: judged piece by piece.

    held ─▶ taken by the dead ─▶ held by a waiter that does not know it yet ─▶ held
               lease + 5 s                    5 s: its next poll

Each acquisition has a label of its own (`owner_name`), which is in the table too. So the judge
knows of each holder in the table whether someone works under it, has yet to learn of it, or is
dead. The seconds that the documents promise are judged for each of these stages by itself. A
sending that is lost, late or refused may take `FAULT_SECONDS` more: each was seen on the wire.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from greenlet import getcurrent

from fairlock.protocol.model import LockState
from tests.simulation.dynamodb import partition_of
from tests.simulation.engine import Engine, Process
from tests.simulation.judge import Belief, Judge

_LOCK: Final = "LOCK#"
POLL_SECONDS: Final = 5.0
"""A waiting client asks at least so often (docs/guarantees.md)."""
TAKEOVER_SECONDS: Final = 5.0
"""After its lease, the next who asks gets the place of a dead holder (docs/guarantees.md)."""
FAULT_SECONDS: Final = 4.5
"""What one spoilt sending may cost: its time-out of 1.5 s, and a pause of up to 2 s, and a third of
the 3 s for which a client pauses after three of them (docs/guarantees.md)."""
OUTAGE_SECONDS: Final = 12.0
"""After an outage each client asks again within that (docs/guarantees.md)."""
_LATENCY_SECONDS: Final = 0.5
_PROMISE: Final = "no lock taken by no one"


class Stage(StrEnum):
    """What the owner of an acquisition is at."""

    WAITS = "waits"
    UNSEEN = "waits for several, and may hold some of them"
    HOLDS = "holds"
    LEAVES = "leaves"
    ENDED = "ended"


class Phase(StrEnum):
    """What keeps the waiters of a lock from it."""

    FINE = "nothing: it is held, or no one waits"
    TAKEN = "a dead owner is in the table"
    UNTOLD = "its new holder does not know it yet"
    LEAVING = "its holder is about to release it"
    FREE = "it is free, and no waiter has noticed"


@dataclass(slots=True, eq=False)
class Acquisition:
    """One client asks for one lock, perhaps holds it, and leaves.

    Attributes:
        label: its `owner_name`, of no other acquisition.
        limit: permits, as it says.
        version: that it names with `only_newest`.
        belief: while it holds.
    """

    lock: str
    label: str
    limit: int
    process: Process
    version: int | None = None
    stage: Stage = Stage.WAITS
    belief: Belief | None = None


@dataclass(slots=True)
class _Place:
    """A holder in the table: since when, with what lease."""

    label: str | None
    lease: float
    extended_at: float
    expires_at_ms: int
    is_first: bool
    is_in_vain: bool


@dataclass
class _Watch:
    """What is known of one lock."""

    acquisitions: dict[str, Acquisition] = field(default_factory=dict)
    places: dict[str, _Place] = field(default_factory=dict)
    most: int | None = None
    wanted_since: float | None = None
    phase: Phase = Phase.FINE
    since: float = 0.0
    hits: list[float] = field(default_factory=list)
    newest: int = -1


@dataclass
class Recovery:
    """Judges the recovery of all locks of a run.

    Attributes:
        is_out: whether DynamoDB answers nothing at this moment.
        in_vain: grants to owners that had left: within the known limits of the protocol.
        judges: whether all who want a lock are clients, whose labels it knows.
        slowest: what is promised of each, and the longest, in seconds, of those that met no spoilt
            sending; of a death after the last renewal, less the lease.
    """

    engine: Engine
    judge: Judge
    is_out: Callable[[], bool]
    slowest: dict[str, tuple[float, float]] = field(default_factory=dict)
    outage_ended_at: float = 0.0
    in_vain: int = 0
    judges: Callable[[str], bool] = lambda _lock: True
    _killed: set[str] = field(default_factory=set)
    _watches: defaultdict[str, _Watch] = field(default_factory=lambda: defaultdict(_Watch))
    _of_process: defaultdict[Process, dict[Acquisition, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def begins(
        self, lock: str, label: str, limit: int, process: Process, version: int | None = None
    ) -> Acquisition:
        """A client asks for a lock, and will wait."""
        acquisition = Acquisition(lock, label, limit, process, version)
        self._watches[lock].acquisitions[label] = acquisition
        self._of_process[process][acquisition] = None
        self.look(lock)
        return acquisition

    def becomes(self, acquisition: Acquisition, stage: Stage, belief: Belief | None = None) -> None:
        """It has come to its next stage."""
        acquisition.stage, acquisition.belief = stage, belief
        if stage is Stage.HOLDS and acquisition.version is not None:
            watch = self._watches[acquisition.lock]
            watch.newest = max(watch.newest, acquisition.version)
        if stage is Stage.ENDED:
            if not acquisition.process.is_alive:
                self._killed.add(acquisition.label)
            self._of_process[acquisition.process].pop(acquisition, None)
        self.look(acquisition.lock)

    def look_at(self, process: Process) -> None:
        for acquisition in list(self._of_process[process]):
            self.look(acquisition.lock)

    def looks_at_all(self) -> None:
        """DynamoDB has just ceased to answer, or answers again."""
        if not self.is_out():
            self.outage_ended_at = self.engine.now
        for lock in list(self._watches):
            self.look(lock)

    def hit(self, request: Mapping[str, Any]) -> None:
        now, partition = self.engine.now, partition_of(request)
        getcurrent().process.hits.append(now)
        if partition.startswith(_LOCK):
            self._watches[partition[len(_LOCK) :]].hits.append(now)

    def allowance(self, lock: str, since: float) -> float:
        """Seconds that spoilt sendings about a lock may have cost since then."""
        hits = self._watches[lock].hits
        return (len(hits) - bisect_left(hits, since)) * FAULT_SECONDS

    def hits_of(self, process: Process, since: float) -> int:
        """How many sendings of a process were spoilt since then."""
        return len(process.hits) - bisect_left(process.hits, since)

    def saw(self, lock: str, state: LockState) -> None:
        if not self.judges(lock):
            return
        watch, now = self._watches[lock], self.engine.now
        before, watch.places = watch.places, {}
        watch.most = None if state.ceiling is None else state.ceiling.limit
        for holder in state.holders:
            place = before.pop(holder.owner_id, None)
            is_in_vain = place is not None and place.is_in_vain
            if place is None:
                owner = watch.acquisitions.get(holder.owner_name or "")
                has_left = owner is None or owner.stage is Stage.ENDED
                is_in_vain = has_left and holder.owner_name not in self._killed
                self.in_vain += is_in_vain
                self._require_newest(lock, watch, holder.owner_name)
            if place is None or place.expires_at_ms != holder.expires_at_ms:
                place = _Place(
                    holder.owner_name,
                    holder.lease_ms / 1000,
                    now,
                    holder.expires_at_ms,
                    is_first=holder.revision == 1,
                    is_in_vain=is_in_vain,
                )
            watch.places[holder.owner_id] = place
        for place in before.values():
            if self._is_dead(watch, place):
                self._judge_death(lock, watch, place)
        self.look(lock)

    def end(self) -> None:
        """The run is over: what has not ended is judged as it is."""
        for lock, watch in self._watches.items():
            for place in watch.places.values():
                if self._is_dead(watch, place):
                    self._judge_death(lock, watch, place, is_over=False)
            self._close(lock, watch)

    def look(self, lock: str) -> None:
        """Something has happened that may change what its waiters wait for."""
        if not self.judges(lock):
            return
        watch, now = self._watches[lock], self.engine.now
        waiters = [each for each in watch.acquisitions.values() if _waits(each, now)]
        if not waiters or self.is_out() or watch.most == 0:
            watch.wanted_since = None
        elif watch.wanted_since is None:
            watch.wanted_since = now
        phase = self._phase(watch) if watch.wanted_since is not None else Phase.FINE
        if phase is not watch.phase:
            self._close(lock, watch)
            watch.phase, watch.since = phase, now

    def _require_newest(self, lock: str, watch: _Watch, label: str | None) -> None:
        """After a version was granted, and its owner has begun, no lower one is."""
        owner = watch.acquisitions.get(label or "")
        if owner is not None and owner.version is not None:
            what = f"{lock}: version {owner.version} after {watch.newest}"
            self.judge.require("newest only", owner.version >= watch.newest, what)

    def _phase(self, watch: _Watch) -> Phase:
        now, acquisitions = self.engine.now, watch.acquisitions
        for label in [each.label for each in acquisitions.values() if each.stage is Stage.ENDED]:
            if all(place.label != label for place in watch.places.values()):
                del acquisitions[label]
        limits = {each.limit for each in acquisitions.values() if each.stage is not Stage.ENDED}
        # Beside holders with other limits, a waiter may have to wait for all of them.
        limit = limits.pop() if len(limits) == 1 else 1
        limit = limit if watch.most is None else min(limit, watch.most)
        holding = sum(_holds(each, now) for each in acquisitions.values())
        if holding >= limit:
            return Phase.FINE
        of_places = [acquisitions.get(place.label or "") for place in watch.places.values()]
        if any(_is_dead_owner(owner, now) for owner in of_places):
            return Phase.TAKEN
        stages = {each.stage for each in of_places if each is not None}
        if Stage.LEAVES in stages:
            return Phase.LEAVING
        return Phase.UNTOLD if Stage.WAITS in stages else Phase.FREE

    def _is_dead(self, watch: _Watch, place: _Place) -> bool:
        return _is_dead_owner(watch.acquisitions.get(place.label or ""), self.engine.now)

    def _close(self, lock: str, watch: _Watch) -> None:
        """Judges the phase that ends now. That of a dead owner is judged by its lease."""
        if watch.phase in {Phase.FINE, Phase.TAKEN}:
            return
        since = max(watch.since, self.outage_ended_at)
        self._judge(lock, watch.phase, since, POLL_SECONDS)

    def _judge_death(
        self, lock: str, watch: _Watch, place: _Place, *, is_over: bool = True
    ) -> None:
        if watch.phase is not Phase.TAKEN:
            return  # No one waits, or they wait for holders that live.
        owner = watch.acquisitions.get(place.label or "")
        never_knew = owner is None or owner.belief is None
        over_at = place.extended_at + place.lease
        if place.is_in_vain:
            # A copy of the first write of a process whose clock was ahead: docs/protocol.md.
            over_at = max(over_at, place.expires_at_ms / 1000)
        since = max(over_at, watch.since, self.outage_ended_at)
        if self.engine.now < since:
            return  # Released after all, or given back.
        # A lease that is handed over begins a poll later: its owner may not know of it before.
        pause = min(POLL_SECONDS, place.lease / 3) if place.is_first else 0.0
        kind = "a dead waiter's turn" if never_knew else "a holder's death"
        what = kind if is_over else f"{kind}, still there at the end"
        self._judge(lock, what, since, TAKEOVER_SECONDS + pause)

    def _judge(self, lock: str, kind: str, since: float, promised: float) -> None:
        seconds = self.engine.now - since
        if seconds < 0:
            return
        spoilt = self.allowance(lock, since - FAULT_SECONDS)
        most = promised + _LATENCY_SECONDS + spoilt
        if 0 <= since - self.outage_ended_at < _LATENCY_SECONDS:
            kind, promised, spoilt = "an outage", OUTAGE_SECONDS, 0.0
            most = promised + POLL_SECONDS + _LATENCY_SECONDS
        if not spoilt:
            slowest = self.slowest.get(kind, (promised, 0.0))
            self.slowest[kind] = max(promised, slowest[0]), max(seconds, slowest[1])
        what = (
            f"{lock}: {kind}: {seconds:.1f} s of {most:.1f}, {spoilt:g} of them for spoilt sendings"
        )
        self.judge.require(_PROMISE, seconds <= most, what)


def _waits(acquisition: Acquisition, now: float) -> bool:
    process = acquisition.process
    is_awake = process.is_alive and process.suspended_until <= now
    return acquisition.stage is Stage.WAITS and is_awake


def _holds(acquisition: Acquisition, now: float) -> bool:
    belief = acquisition.belief
    if acquisition.stage is Stage.UNSEEN:
        return acquisition.process.is_alive
    is_holding = acquisition.stage is Stage.HOLDS and acquisition.process.is_alive
    return is_holding and belief is not None and not belief.is_forced and belief.own_end() > now


def _is_dead_owner(acquisition: Acquisition | None, now: float) -> bool:
    """Whether a holder in the table has no one who works under it, or will; no matter why."""
    if acquisition is None or acquisition.stage is Stage.ENDED:
        return True
    process = acquisition.process
    if not process.is_alive or process.suspended_until > now:
        return not _holds(acquisition, now)
    return acquisition.stage is Stage.HOLDS and not _holds(acquisition, now)
