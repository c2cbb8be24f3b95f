"""How tests call the operations of a lock: one object over one context; the product has none.

The operations are looked up in their modules at each call, so that a test can replace one there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairlock.errors import LockItemMalformed
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.description import LockDescription
from fairlock.protocol.items import read_state
from fairlock.protocol.model import (
    AcquireRequest,
    ForceReleaseRequest,
    Grant,
    HeartbeatRequest,
    KeepAliveRequest,
    LockState,
    ReleaseRequest,
    SeenLock,
)
from fairlock.protocol.outcomes import NotHeld, Queued, Reaped, Refusal, Released
from fairlock.protocol.schema import lock_key
from fairlock.store import acquire, administration, keep_alive, queue, reap, release
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import ExecutionEnded


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of `fairlock.store` over one context."""

    context: LockContext

    def acquire(
        self, request: AcquireRequest, *, seen: SeenLock | None = None
    ) -> Grant | Queued | Refusal:
        return acquire.acquire(self.context, request, seen=seen)

    def heartbeat(self, request: HeartbeatRequest) -> Grant | NotHeld:
        grant = keep_alive.renew_lease(self.context, request)
        return grant or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)

    def keep_alive(self, request: KeepAliveRequest) -> KeepAliveOutcome:
        return keep_alive.keep_alive(self.context, request)

    def release(
        self, request: ReleaseRequest, *, seen: SeenLock | None = None
    ) -> Released | NotHeld:
        return release.release(self.context, request, seen=seen)

    def reap(self, ended: ExecutionEnded) -> Reaped:
        return reap.reap(self.context, ended)

    def force_release(self, request: ForceReleaseRequest) -> Released | None:
        return administration.force_release(self.context, request)

    def change_ceiling(self, request: SetCeilingRequest) -> None:
        administration.change_ceiling(self.context, request)

    def read_state(self, lock_name: str) -> LockState:
        return read_state(self.context.table.read(lock_key(lock_name)))

    def read_lock(self, lock_name: str) -> SeenLock:
        return queue.read_lock(self.context, lock_name)

    def count_ahead(self, lock_name: str, owner_id: str, *, ticket: int) -> int:
        return queue.count_ahead(self.context, lock_name, owner_id, entered_at_ms=ticket)

    def describe(self, lock_name: str) -> LockDescription | None:
        return administration.describe(self.context, lock_name)

    def list_locks(
        self, prefix: str = "", *, after: str | None = None
    ) -> Iterator[LockDescription | LockItemMalformed]:
        return administration.list_locks(self.context, prefix, after=after)
