"""What to write next when a holder leaves a contended lock, or a permit of one is free.

              queue is empty    head waits, a permit for it   head waits, no permit for it
departing     leave_and_close_queue   hand_over_permit (its own)    leave_without_successor
none departs  close_queue       hand_over_permit (a free one) nothing to do
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leasehold.protocol.model import HandOff, Holder, LockState, Waiter
from leasehold.protocol.queue import (
    DepartingHolder,
    close_queue,
    hand_over_permit,
    leave_and_close_queue,
    leave_without_successor,
)
from leasehold.protocol.requests import Transaction, Update


@dataclass(frozen=True, slots=True)
class Step:
    """One write, and what it leads to if it happens.

    Attributes:
        write: the request.
        after: the lock as it will then be, as far as is known.
        hand_off: the grant that it makes.
    """

    write: Update | Transaction
    after: LockState
    hand_off: HandOff | None = None


def next_step(
    lock_name: str,
    state: LockState,
    queue: Sequence[Waiter],
    departing: DepartingHolder | None,
    *,
    now_ms: int,
) -> Step | None:
    """The next write on a lock seen in this state, its queue read after it; None if all is done."""
    remaining = _without(state, departing)
    if queue and remaining.held < queue[0].request.limit:
        is_last = len(queue) == 1
        transaction, hand_off = hand_over_permit(
            state, queue[0], departing, is_last=is_last, now_ms=now_ms
        )
        return Step(transaction, _with_holder(remaining, hand_off), hand_off)
    if departing is not None:
        if queue:
            limit = queue[0].request.limit
            update = leave_without_successor(
                lock_name, departing, waiters_limit=limit, now_ms=now_ms
            )
            return Step(update, remaining)
        update = leave_and_close_queue(lock_name, departing, wait_seq=state.wait_seq, now_ms=now_ms)
        return Step(update, replace(remaining, contended=False))
    if state.contended and not queue:
        update = close_queue(lock_name, wait_seq=state.wait_seq)
        return Step(update, replace(state, contended=False))
    return None


def is_still_holder(departing: DepartingHolder, state: LockState) -> bool:
    """Whether the departing is still there: one that is put out may not have renewed its lease."""
    holder = state.holder(departing.holder.owner_id)
    if holder is None:
        return False
    return departing.voluntary or holder.revision == departing.holder.revision


def _without(state: LockState, departing: DepartingHolder | None) -> LockState:
    if departing is None:
        return state
    owner_id = departing.holder.owner_id
    holders = tuple(holder for holder in state.holders if holder.owner_id != owner_id)
    return replace(state, held=state.held - 1, holders=holders)


def _with_holder(state: LockState, hand_off: HandOff) -> LockState:
    grant, request = hand_off.grant, hand_off.waiter.request
    holder = Holder(
        owner_id=grant.owner_id,
        owner_name=request.owner_name,
        acquired_at_ms=grant.acquired_at_ms,
        expires_at_ms=grant.expires_at_ms,
        lease_ms=grant.lease_ms,
        revision=1,
        fencing_token=grant.fencing_token,
        data=request.data,
        execution_arn=request.execution_arn,
    )
    return replace(
        state,
        fencing_token=grant.fencing_token,
        held=state.held + 1,
        holders=(*state.holders, holder),
    )
