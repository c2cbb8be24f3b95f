"""The operations of a lock, over one table."""

from __future__ import annotations

from leasehold import acquisition
from leasehold.context import LockContext
from leasehold.dynamo import Written
from leasehold.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    NotHeld,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
)
from leasehold.protocol.items import read_holder, read_state
from leasehold.protocol.requests import give_back, renew


class LockStore:
    """The lock protocol over one table. Uncontended, each operation is one request.

    Guaranteed: no more than `limit` owners hold a lock name at any time; an owner loses its place
    only after its stored lease plus the clock tolerance, by the clock of the contender, and never
    while the workflow it belongs to runs; the fencing tokens of a lock name grow for ever.

    Not guaranteed: that a stalled holder notices the end of its lease. Pass the fencing token on to
    whatever the lock protects, and refuse older tokens there.

    All operations raise `LockStoreUnavailable` when the outcome is unknown; each may be repeated
    with the same owner_id, and then gives the answer that got lost.
    """

    def __init__(self, context: LockContext) -> None:
        self._context = context

    def acquire(self, request: AcquireRequest) -> Grant | Refusal:
        """Takes a permit if one is free, or if a holder's lease is over.

        One request if a permit is free or all are out; two to take over an expired holder, and one
        DescribeExecution before if that holder is a workflow.
        """
        return acquisition.acquire(self._context, request)

    def heartbeat(self, request: HeartbeatRequest) -> Renewal | NotHeld:
        """Lets the lease end one lease from now, also one that ran out, if nobody took it over."""
        now_ms = self._context.clock.wall_ms()
        outcome = self._context.table.update(renew(request, now_ms=now_ms))
        if not isinstance(outcome, Written):
            return NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)
        holder = read_holder(outcome.item, request.owner_id)
        return Renewal(
            lock_name=request.lock_name,
            owner_id=request.owner_id,
            fencing_token=holder.fencing_token,
            lease_ms=holder.lease_ms,
            acquired_at_ms=holder.acquired_at_ms,
            expires_at_ms=holder.expires_at_ms,
        )

    def release(self, request: ReleaseRequest) -> Released | NotHeld:
        """Gives the permit back, if the caller has it.

        A repeated release is answered "released" again as long as nobody else released in between.
        """
        now_ms = self._context.clock.wall_ms()
        outcome = self._context.table.update(give_back(request, now_ms=now_ms))
        if isinstance(outcome, Written):
            holder = read_holder(outcome.item, request.owner_id)
            held_ms = max(0, now_ms - holder.acquired_at_ms)
            return Released(lock_name=request.lock_name, owner_id=request.owner_id, held_ms=held_ms)
        if read_state(outcome.item).last_released == request.owner_id:
            return Released(lock_name=request.lock_name, owner_id=request.owner_id, held_ms=None)
        return NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)
