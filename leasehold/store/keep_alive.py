"""keep_alive: the beats of a state that stands beside the work of a workflow.

note the beat ─▶ written, or there is no claim ─▶ renew ─▶ written ─────▶ renewed
     │                                              └────▶ not held ─┐
     └──▶ refused ───────────▶ the claim as it is ◀──────────────────┘
                                 ├─ the work has ended ─────────────────▶ done
                                 ├─ fenced: the execution was over, and redriven
                                 │     └─ take the lock again ─▶ free ──▶ taken again
                                 │                          └──▶ taken ─▶ lost
                                 └─ it stands, or there is none ────────▶ lost

Release says that the work has ended before it frees the lock. So a beat that finds the lock gone
and the claim without that mark has lost it, whatever others did in between. Only what the reaper
freed is taken again: a beat may land after its work has failed, and the lock was released.
"""

from __future__ import annotations

from enum import Enum, auto

from leasehold.dynamodb.lock_table import Written
from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.claims import (
    Claim,
    claim_key,
    claim_of,
    has_ended,
    is_fenced,
    reacquire_after_redrive,
    record_heartbeat,
)
from leasehold.protocol.items import read_state
from leasehold.protocol.model import HeartbeatRequest, KeepAliveRequest
from leasehold.store.context import LockContext
from leasehold.store.renew import renew_lease


class KeepAliveOutcome(Enum):
    """What a beat has found."""

    RENEWED = auto()
    REACQUIRED = auto()
    """The execution had ended, and was redriven; its lock was free."""
    DONE = auto()
    LOST = auto()


def keep_alive(context: LockContext, request: KeepAliveRequest) -> KeepAliveOutcome:
    """See `LockStore.keep_alive`."""
    acquisition = request.acquisition
    claim = claim_of(acquisition, request.execution_arn)
    now_ms = context.clock.wall_ms()
    noted = context.table.update(record_heartbeat(claim, request.task_token, now_ms=now_ms))
    found = noted.item
    if isinstance(noted, Written) or not (has_ended(found) or is_fenced(found)):
        heartbeat = HeartbeatRequest(
            lock_name=acquisition.lock_name,
            owner_id=acquisition.owner_id,
            lease_ms=acquisition.lease_ms,
        )
        if isinstance(renew_lease(context, heartbeat), Written):
            return KeepAliveOutcome.RENEWED
        found = context.table.read(claim_key(claim))
    if has_ended(found):
        return KeepAliveOutcome.DONE
    return _take_again(context, request, claim) if is_fenced(found) else KeepAliveOutcome.LOST


def _take_again(context: LockContext, request: KeepAliveRequest, claim: Claim) -> KeepAliveOutcome:
    acquisition = request.acquisition
    transaction = reacquire_after_redrive(
        claim, acquisition, request.task_token, now_ms=context.clock.wall_ms()
    )
    outcome = context.table.transact(transaction)
    if isinstance(outcome, Written):
        return KeepAliveOutcome.REACQUIRED
    if outcome.state is not None:
        held = read_state(outcome.state).holder(acquisition.owner_id) is not None
        if not held:
            return KeepAliveOutcome.LOST
    elif has_ended(context.table.read(claim_key(claim))):
        return KeepAliveOutcome.DONE
    # The reaper is at work, or another copy of this beat is.
    message = "others moved the claim of this workflow; the outcome is unknown, repeat the call"
    raise LockStoreUnavailable(message)
