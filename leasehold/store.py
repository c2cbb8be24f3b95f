"""The operations of a lock, over one table."""

from __future__ import annotations

from leasehold import acquisition, releasing
from leasehold.context import LockContext
from leasehold.dynamo import Written
from leasehold.model import (
    AcquireRequest,
    Grant,
    HeartbeatRequest,
    NotHeld,
    Queued,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
)
from leasehold.protocol.items import read_holder
from leasehold.protocol.requests import renew


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

    def acquire(self, request: AcquireRequest) -> Grant | Queued | Refusal:
        """Takes a permit if one is free, or if a holder's lease is over; else waits or is refused.

        One request if a permit is free or all are out; two to take over an expired holder, and one
        DescribeExecution before if that holder is a workflow; three to join the queue.
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
        """Gives the permit back if the caller has it, to the oldest waiter if there is one.

        One request if nobody waits; three and a push if somebody does, however many. A repeated
        release is answered "released" again as long as nobody else released in between.
        """
        return releasing.release(self._context, request)
