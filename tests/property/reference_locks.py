"""The lock protocol once more, as plain Python over plain dictionaries: what the answers must be.

Written from the design, with nothing of `leasehold` in it. One call is one moment: there is nothing
between its steps, which is what the conditional writes have to achieve.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

Answer = dict[str, Any]
TOLERANCE_MS = 2_000
RETENTION_MS = 48 * 3_600_000


@dataclass
class Place:
    """A permit that is out."""

    token: int
    acquired_ms: int
    expires_ms: int
    lease_ms: int
    revision: int = 1

    def is_fresh(self, now_ms: int) -> bool:
        """Whether half of the lease is left: a grant that is told again is renewed else."""
        return self.expires_ms - now_ms >= self.lease_ms // 2


@dataclass
class Lock:
    """One lock as it should be stored."""

    last_token: int
    places: dict[str, Place] = field(default_factory=dict)
    last_released: str | None = None
    ttl_seconds: int = 0


@dataclass(frozen=True)
class Plan:
    """What a caller decided to write after its first look, if it decided to write once more."""

    renew: bool = False
    evictable: tuple[tuple[str, Place], ...] = ()


@dataclass
class Model:
    """All locks. Times are epoch milliseconds of the clock of whoever serves the call."""

    locks: dict[str, Lock] = field(default_factory=dict)

    def plan(self, now_ms: int, *, lock: str, owner: str, limit: int) -> Plan | None:
        """The second write of an acquire whose first was refused now; None if there is none."""
        state = self.locks.get(lock)
        if state is None:
            return None
        if owner in state.places:
            return None if state.places[owner].is_fresh(now_ms) else Plan(renew=True)
        if state.last_released == owner or len(state.places) < limit:
            return None
        evictable = self._leavers(state, now_ms, limit)
        return Plan(
            evictable=tuple((name, replace(state.places[name])) for name in evictable) or ()
        )

    def acquire(
        self, now_ms: int, *, lock: str, owner: str, limit: int, lease_ms: int, plan: Plan | None
    ) -> Answer:
        state = self.locks.get(lock) or Lock(last_token=now_ms * 1000)
        place = state.places.get(owner)
        if place is not None:
            if not place.is_fresh(now_ms) or (plan is not None and plan.renew):
                self._renew(state, place, now_ms, lease_ms)
            return {"acquired": True, **_held(lock, owner, place)}
        if state.last_released == owner:
            return self._refused(state, lock, owner, "ALREADY_RELEASED")
        evictable = self._chosen(state, now_ms, limit, plan)
        if evictable is None:
            return self._refused(state, lock, owner, "HELD")
        for departing in evictable:
            del state.places[departing]
        state.last_token += 1
        place = Place(state.last_token, now_ms, now_ms + lease_ms, lease_ms)
        state.places[owner] = place
        self._touch(state, now_ms)
        self.locks[lock] = state
        return {"acquired": True, **_held(lock, owner, place)}

    def heartbeat(self, now_ms: int, *, lock: str, owner: str, lease_ms: int | None) -> Answer:
        state = self.locks.get(lock)
        place = state.places.get(owner) if state else None
        if state is None or place is None:
            return {"renewed": False, **_not_held(lock, owner)}
        self._renew(state, place, now_ms, place.lease_ms if lease_ms is None else lease_ms)
        return {"renewed": True, **_held(lock, owner, place)}

    def release(self, now_ms: int, *, lock: str, owner: str) -> Answer:
        state = self.locks.get(lock)
        if state is not None and owner in state.places:
            del state.places[owner]
            state.last_released = owner
            self._touch(state, now_ms)
        elif state is None or state.last_released != owner:
            return {"released": False, **_not_held(lock, owner)}
        return {"released": True, "lock_name": lock, "owner_id": owner}

    def _chosen(
        self, state: Lock, now_ms: int, limit: int, plan: Plan | None
    ) -> tuple[str, ...] | None:
        """Who leaves for a new holder; None if there is no permit to be had."""
        if plan is not None and plan.evictable:
            unchanged = all(state.places.get(name) == seen for name, seen in plan.evictable)
            if unchanged and len(state.places) - len(plan.evictable) < limit:
                return tuple(name for name, _ in plan.evictable)
        if len(state.places) < limit:
            return ()
        return self._leavers(state, now_ms, limit) or None

    def _leavers(self, state: Lock, now_ms: int, limit: int) -> tuple[str, ...]:
        needed = len(state.places) - limit + 1
        over = [
            (place.expires_ms, place.token, name)
            for name, place in state.places.items()
            if place.expires_ms + TOLERANCE_MS < now_ms
        ]
        return tuple(name for *_, name in sorted(over)[:needed]) if len(over) >= needed else ()

    def _renew(self, state: Lock, place: Place, now_ms: int, lease_ms: int) -> None:
        place.expires_ms, place.lease_ms = now_ms + lease_ms, lease_ms
        place.revision += 1
        self._touch(state, now_ms)

    def _touch(self, state: Lock, now_ms: int) -> None:
        state.ttl_seconds = (now_ms + RETENTION_MS) // 1000

    def _refused(self, state: Lock, lock: str, owner: str, reason: str) -> Answer:
        places = sorted(state.places.items(), key=lambda pair: pair[1].token)
        holders = [
            {
                "owner_name": f"name of {name}",
                "acquired_at": _iso(place.acquired_ms),
                "expires_at": _iso(place.expires_ms),
            }
            for name, place in places
        ]
        refused = {"acquired": False, "lock_name": lock, "owner_id": owner, "reason": reason}
        return {**refused, "holders": holders}


def _held(lock: str, owner: str, place: Place) -> Answer:
    return {
        "lock_name": lock,
        "owner_id": owner,
        "fencing_token": place.token,
        "lease_seconds": place.lease_ms / 1000,
        "acquired_at": _iso(place.acquired_ms),
        "expires_at": _iso(place.expires_ms),
    }


def _not_held(lock: str, owner: str) -> Answer:
    return {"lock_name": lock, "owner_id": owner, "reason": "NOT_HELD"}


def _iso(epoch_ms: int) -> str:
    moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
