"""Claims around the operations of a workflow: on record before it asks, off once it has released.

Callers without an execution pay nothing here.
"""

from __future__ import annotations

from dataclasses import replace

from leasehold.dynamodb.lock_table import Written
from leasehold.errors import LockStoreUnavailable
from leasehold.protocol.claims import (
    Claim,
    claim_of,
    delete_claim,
    mark_ended,
    read_claim,
    task_token_in,
    write_claim,
)
from leasehold.protocol.model import AcquireRequest, NotHeld, Released, ReleaseRequest
from leasehold.store.context import LockContext
from leasehold.store.events import ClaimNotRemoved


def register_claim(context: LockContext, request: AcquireRequest) -> AcquireRequest | None:
    """Before an acquisition of a workflow asks for its lock.

    Returns:
        The request, with its place in the queue; None if its work has ended, or its execution was
        found to be over.
    """
    if request.execution_arn is None:
        return request
    claim = claim_of(request, request.execution_arn)
    outcome = context.table.update(write_claim(claim, now_ms=context.clock.wall_ms()))
    if not isinstance(outcome, Written):
        return None
    recorded = read_claim(request.execution_arn, outcome.item)
    return replace(request, entered_at_ms=recorded.entered_at_ms)


def remove_claim(context: LockContext, request: ReleaseRequest, answer: Released | NotHeld) -> None:
    """Removes the claim of an acquisition that has ended; never fails, as the lock is free.

    Who gave up waiting leaves its claim there, which says so: an acquire of its own may still be
    under way.
    """
    if request.entered_at_ms is not None and not _was_held(answer):
        return
    execution_arn = request.execution_arn
    if execution_arn is None and isinstance(answer, Released):
        execution_arn = answer.execution_arn
    if execution_arn is None:
        return
    try:
        context.table.delete(delete_claim(_claim(request, execution_arn)))
    except LockStoreUnavailable:
        context.observe(ClaimNotRemoved(lock_name=request.lock_name, execution_arn=execution_arn))


def _was_held(answer: Released | NotHeld) -> bool:
    return isinstance(answer, Released) and answer.held_ms is not None


def end_claim(context: LockContext, request: ReleaseRequest, execution_arn: str) -> str | None:
    """Before the lock is freed, or the queue left: from now on nothing of this may begin again.

    No beat takes the absence of the lock for a loss, and no acquire records itself any more.

    Returns:
        The task token of the state that beats, to complete once the lock is free.
    """
    claim = _claim(request, execution_arn)
    outcome = context.table.update(mark_ended(claim, now_ms=context.clock.wall_ms()))
    return task_token_in(outcome.item)


def _claim(request: ReleaseRequest, execution_arn: str) -> Claim:
    return Claim(
        execution_arn=execution_arn,
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        entered_at_ms=request.entered_at_ms,
    )
