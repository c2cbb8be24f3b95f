"""The lock protocol once more, as plain Python over plain dictionaries: what the answers must be.

Written from the design, with nothing of `fairlock` in it. One call is one moment: there is nothing
between its steps, which is what the conditional writes have to achieve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

Answer = dict[str, Any]
FRONT_END_MS = 500
"""How far one of DynamoDB's clocks may be from another."""
MARGIN_MS = 1_000 + FRONT_END_MS
"""Stored on top of a lease: a Date is cut to the second."""
SHARE = 0.98
"""Of a lease: a holder's clock may run slowly."""
SLACK_MS = 1_000
"""By which a departure may move back the time of the last one: clocks differ."""
RETENTION_MS = 48 * 3_600_000


@dataclass
class Permit:
    """A permit that is out."""

    token: int
    acquired_ms: int
    expires_ms: int
    lease_ms: int
    limit: int
    revision: int = 1

    def is_fresh(self, now_ms: int) -> bool:
        """Whether half of the lease is left; if not, an acquire that is repeated renews it."""
        return self.own_ms(now_ms) >= self.lease_ms * 0.5

    def own_ms(self, now_ms: int) -> int:
        """How long its holder may rely on it from now."""
        return max(0, int(min(self.lease_ms, self.expires_ms - now_ms - MARGIN_MS) * SHARE))


@dataclass
class Lock:
    """One lock as it should be stored."""

    last_token: int
    permits: dict[str, Permit] = field(default_factory=dict)
    last_released: str | None = None
    ttl_seconds: int = 0
    limit: int = 0
    left_ms: int = 0
    """When an owner left last; 0 if none did."""

    @property
    def is_within_limits(self) -> bool:
        """Whether no holder, nor the limit in force, is above what any holder allows."""
        most = max(self.limit, len(self.permits))
        return all(most <= permit.limit for permit in self.permits.values())

    def lowest_limit(self, limit: int, leaving: tuple[str, ...] = ()) -> int:
        """Of an owner's own, and of all holders that stay."""
        staying = [p.limit for name, p in self.permits.items() if name not in leaving]
        return min([limit, *staying])


@dataclass(frozen=True)
class Plan:
    """What a caller whose first write was refused decided to write next.

    Attributes:
        renew: whether it renews its own permit, and writes no new one.
        evictable: the permits, as they were seen, that it takes away.
        last_token: of the lock as it was seen: the write fails if another caller came in since,
        left_ms: or left.
        limit: the limit in force that it sets.
    """

    renew: bool = False
    evictable: tuple[tuple[str, Permit], ...] = ()
    last_token: int = 0
    left_ms: int = 0
    limit: int = 0

    def is_possible(self, state: Lock) -> bool:
        """Whether no one came or left, and the permits to take away are as they were."""
        if self.renew:
            return False
        unchanged = all(state.permits.get(name) == seen for name, seen in self.evictable)
        seen_last = (state.last_token, state.left_ms) == (self.last_token, self.left_ms)
        return unchanged and seen_last


@dataclass
class ReferenceLocks:
    """All locks. Times are epoch milliseconds of the clock of the process that serves the call."""

    locks: dict[str, Lock] = field(default_factory=dict)

    def plan(self, now_ms: int, *, lock: str, owner: str, limit: int) -> Plan | None:
        """The second write of an acquire whose first was refused now; None if there is none."""
        state = self.locks.get(lock)
        if state is None or state.last_released == owner:
            return None
        if owner in state.permits:
            return None if state.permits[owner].is_fresh(now_ms) else Plan(renew=True)
        chosen = self._room(state, now_ms, limit)
        is_one_write = not state.permits or state.limit == limit
        if chosen is None or (is_one_write and not chosen[0]):
            return None
        evictable = tuple((name, replace(state.permits[name])) for name in chosen[0])
        return Plan(
            evictable=evictable,
            last_token=state.last_token,
            left_ms=state.left_ms,
            limit=chosen[1],
        )

    def acquire(
        self, now_ms: int, *, lock: str, owner: str, limit: int, lease_ms: int, plan: Plan | None
    ) -> Answer:
        state = self.locks.get(lock) or Lock(last_token=now_ms * 1000)
        permit = state.permits.get(owner)
        if permit is not None:
            if not permit.is_fresh(now_ms) or (plan is not None and plan.renew):
                self._renew(state, permit, now_ms, lease_ms)
            return {"acquired": True, **_held(lock, owner, permit, now_ms)}
        if state.last_released == owner:
            return self._refused(state, lock, owner, "ALREADY_RELEASED")
        chosen = self._room(state, now_ms, limit)
        if plan is not None and plan.is_possible(state):
            chosen = tuple(name for name, _ in plan.evictable), plan.limit
        if chosen is None:
            return self._refused(state, lock, owner, "HELD")
        evictable, state.limit = chosen
        for departing in evictable:
            del state.permits[departing]
            state.left_ms = max(state.left_ms, now_ms)
        state.last_token += 1
        permit = Permit(state.last_token, now_ms, now_ms + lease_ms + MARGIN_MS, lease_ms, limit)
        state.permits[owner] = permit
        self._touch(state, now_ms)
        self.locks[lock] = state
        return {"acquired": True, **_held(lock, owner, permit, now_ms)}

    def heartbeat(self, now_ms: int, *, lock: str, owner: str, lease_ms: int | None) -> Answer:
        state = self.locks.get(lock)
        permit = state.permits.get(owner) if state else None
        if state is None or permit is None:
            return {"renewed": False, **_not_held(lock, owner)}
        self._renew(state, permit, now_ms, permit.lease_ms if lease_ms is None else lease_ms)
        return {"renewed": True, **_held(lock, owner, permit, now_ms)}

    def release(self, now_ms: int, *, lock: str, owner: str) -> Answer:
        state = self.locks.get(lock)
        if state is not None and owner in state.permits:
            del state.permits[owner]
            state.last_released = owner
            is_last = state.left_ms <= now_ms + SLACK_MS
            state.left_ms = now_ms if is_last else state.left_ms
            self._touch(state, state.left_ms)
        elif state is None or state.last_released != owner:
            return {"released": False, **_not_held(lock, owner)}
        return {"released": True, "lock_name": lock, "owner_id": owner}

    def _room(self, state: Lock, now_ms: int, limit: int) -> tuple[tuple[str, ...], int] | None:
        """Owners that are evicted for a new holder, and the limit that is then in force.

        None if there is no permit for it.
        """
        if len(state.permits) < state.lowest_limit(limit):
            return (), state.lowest_limit(limit)
        evictable = self._expired(state, now_ms, limit)
        return (evictable, state.lowest_limit(limit, leaving=evictable)) if evictable else None

    def _expired(self, state: Lock, now_ms: int, limit: int) -> tuple[str, ...]:
        needed = len(state.permits) - state.lowest_limit(limit) + 1
        over = [
            (permit.expires_ms, permit.token, name)
            for name, permit in state.permits.items()
            if permit.expires_ms + FRONT_END_MS <= now_ms
        ]
        return tuple(name for *_, name in sorted(over)[:needed]) if len(over) >= needed else ()

    def _renew(self, state: Lock, permit: Permit, now_ms: int, lease_ms: int) -> None:
        asked_ms = now_ms + lease_ms + MARGIN_MS
        # The end moves back only if another lease is asked for: a heartbeat may have come late.
        is_meant = lease_ms != permit.lease_ms
        permit.expires_ms = asked_ms if is_meant else max(asked_ms, permit.expires_ms)
        permit.lease_ms = lease_ms
        permit.revision += 1
        self._touch(state, now_ms)

    def _touch(self, state: Lock, now_ms: int) -> None:
        state.ttl_seconds = (now_ms + RETENTION_MS) // 1000

    def _refused(self, state: Lock, lock: str, owner: str, reason: str) -> Answer:
        permits = sorted(state.permits.items(), key=lambda pair: pair[1].token)
        holders = [
            {
                "owner_name": f"name of {name}",
                "acquired_at": _iso(permit.acquired_ms),
                "expires_at": _iso(permit.expires_ms),
            }
            for name, permit in permits
        ]
        refused = {"acquired": False, "lock_name": lock, "owner_id": owner, "reason": reason}
        return {**refused, "holders": holders}


def _held(lock: str, owner: str, permit: Permit, now_ms: int) -> Answer:
    return {
        "lock_name": lock,
        "owner_id": owner,
        "fencing_token": permit.token,
        "lease_seconds": permit.lease_ms / 1000,
        "acquired_at": _iso(permit.acquired_ms),
        "expires_in_seconds": permit.own_ms(now_ms) / 1000,
    }


def _not_held(lock: str, owner: str) -> Answer:
    return {"lock_name": lock, "owner_id": owner, "reason": "NOT_HELD"}


def _iso(epoch_ms: int) -> str:
    moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_stored(item: Mapping[str, Any]) -> Lock | None:
    """A lock as it is stored; None if it is not."""
    if not item:
        return None

    def permit(name: str) -> Permit:
        stored = item[f"holder:{name}"]["M"]
        numbers = (int(stored[short]["N"]) for short in "aelnr")
        return Permit(int(item[f"token:{name}"]["N"]), *numbers)

    owners = [name.removeprefix("holder:") for name in item if name.startswith("holder:")]
    assert int(item["held"]["N"]) == len(owners), "the count of permits is that of the holders"
    return Lock(
        last_token=int(item["fencing_token"]["N"]),
        permits={name: permit(name) for name in owners},
        last_released=item.get("last_released", {}).get("S"),
        ttl_seconds=int(item["expiry_time"]["N"]),
        limit=int(item["limit"]["N"]),
        left_ms=int(item.get("released_at", {"N": "0"})["N"]),
    )
