"""Claims around the operations of a workflow: written before it asks, done once it has released.

Callers without an execution pay nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from fairlock.dynamodb.lock_table import Written
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.claims import (
    claim_of,
    has_ended,
    is_fenced,
    mark_done,
    mark_ended,
    place_in,
    read_claim,
    task_token_in,
    write_claim,
)
from fairlock.protocol.model import AcquireRequest, NotHeld, Released, ReleaseRequest
from fairlock.store.context import LockContext
from fairlock.store.events import ClaimNotRemoved

_FIRST: Final = 1


def register_claim(
    context: LockContext, request: AcquireRequest, execution_arn: str
) -> AcquireRequest | None:
    """Writes the claim of an acquisition before it asks for its lock.

    Returns:
        The request, with its place in the queue; None if its work has ended, or its execution was
        found to be over.
    """
    claim = claim_of(request, execution_arn)
    # Before the claim is written: if this call stalls afterwards, while a later call of the same
    # acquisition is granted the lock and releases it, what it asks for counts as that old.
    called_at_ms = context.aws_clock.now_ms()
    now_ms = context.aws_clock.now_ms()
    outcome = context.table.update(write_claim(claim, waits=request.waits, now_ms=now_ms))
    if not isinstance(outcome, Written):
        return None
    written = read_claim(execution_arn, outcome.item)
    place = written.entered_at_ms
    # Nobody waits under a claim that was not there before.
    return replace(
        request,
        claimed_at_ms=place,
        ticket=None if written.revision == _FIRST else place,
        called_at_ms=called_at_ms,
    )


def still_wanted(context: LockContext, request: AcquireRequest) -> AcquireRequest | None:
    """The request of a call as of now, if its claim says that its work is not over; else None."""
    if request.execution_arn is None:
        return request
    called_at_ms = context.aws_clock.now_ms()  # Before the read: it may be over right after it.
    found = context.table.read(claim_of(request, request.execution_arn).key)
    if not found or has_ended(found) or is_fenced(found):
        return None
    return replace(request, called_at_ms=called_at_ms)


def close_claim(context: LockContext, request: ReleaseRequest, answer: Released | NotHeld) -> None:
    """Marks the claim of an acquisition as done; never fails, as the lock is free.

    The claim of an owner that gave up waiting stays marked as ended: an acquire of that owner may
    still be under way.
    """
    gave_back = isinstance(answer, Released) and answer.gave_back
    if request.waits and not gave_back:
        return
    execution_arn = request.execution_arn
    if execution_arn is None and isinstance(answer, Released):
        execution_arn = answer.execution_arn
    if execution_arn is None:
        return
    try:
        claim = claim_of(request, execution_arn)
        context.table.update(mark_done(claim, now_ms=context.aws_clock.now_ms()))
    except LockStoreUnavailable:
        context.observe(ClaimNotRemoved(lock_name=request.lock_name, execution_arn=execution_arn))


@dataclass(frozen=True, slots=True)
class EndedClaim:
    """A claim whose work has ended.

    Attributes:
        task_token: of the heartbeat state, to complete once the lock is free; None if there is
            none.
        entered_at_ms: the place in the queue; None if this acquisition does not wait.
    """

    task_token: str | None
    entered_at_ms: int | None


def end_claim(context: LockContext, request: ReleaseRequest, execution_arn: str) -> EndedClaim:
    """Marks the claim as ended, before the lock is freed or the queue is left.

    From now on no heartbeat takes the absence of the lock for a loss, and no acquire of this owner
    writes the claim again.
    """
    claim = claim_of(request, execution_arn)
    now_ms = context.aws_clock.now_ms()
    outcome = context.table.update(mark_ended(claim, waits=request.waits, now_ms=now_ms))
    return EndedClaim(task_token_in(outcome.item), place_in(outcome.item))
