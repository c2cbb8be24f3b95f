"""Renewing a lease: one request, and one more when the item must be kept for longer."""

from __future__ import annotations

from leasehold.dynamodb.lock_table import ConditionFailed, Written
from leasehold.protocol.items import read_state
from leasehold.protocol.model import HeartbeatRequest
from leasehold.protocol.permits import renew
from leasehold.store.context import LockContext


def renew_lease(context: LockContext, request: HeartbeatRequest) -> Written | ConditionFailed:
    """Lets the lease end one lease from now, if its owner is a holder."""
    outcome = context.table.update(renew(request, now_ms=context.clock.wall_ms()))
    if isinstance(outcome, Written) or read_state(outcome.item).holder(request.owner_id) is None:
        return outcome
    # A holder was refused: TTL would soon delete the lock under its hands, see `retention.py`.
    return context.table.update(renew(request, now_ms=context.clock.wall_ms(), retain_long=True))
