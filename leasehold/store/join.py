"""Joins the queue, and advises when to ask again."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from leasehold.backoff import advise_retry_seconds
from leasehold.dynamodb.lock_table import Written
from leasehold.protocol.items import read_waiter
from leasehold.protocol.model import AcquireRequest, LockState, Queued, Waiter
from leasehold.protocol.queue import join_queue, waiters_of, waiters_up_to
from leasehold.protocol.schema import RETENTION_MS
from leasehold.store.context import LockContext

_POLL_SECONDS_PER_POSITION: Final = 5
"""The next in the queue asks at least every 5 s, so that a permit handed to it is not idle for
long."""
_POLLS_MISSED: Final = 2
_POLL_GRACE_MS: Final = 10_000


def join(
    context: LockContext, request: AcquireRequest, state: LockState, *, behind_others: bool
) -> Queued | None:
    """Puts the caller into the queue or keeps its place; None if a permit became free meanwhile.

    Two requests: the transaction that joins, and a count that tells the position. A caller without
    a ticket costs one more, which finds out whether it has a place already.
    """
    now_ms = context.clock.wall_ms()
    entered_at_ms = request.entered_at_ms
    if entered_at_ms is None:
        entered_at_ms = _earlier_entry_ms(context, request) or now_ms
    request = replace(request, entered_at_ms=entered_at_ms)
    retry_after_seconds = advise(context, request, state)
    waiter = Waiter(
        request=request,
        entered_at_ms=entered_at_ms,
        expires_at_ms=_gone_ms(request, now_ms=now_ms, retry_after_seconds=retry_after_seconds),
    )
    transaction = join_queue(waiter, state, behind_others=behind_others, now_ms=now_ms)
    if not isinstance(context.table.transact(transaction), Written):
        return None
    position = max(1, context.table.count(waiters_up_to(waiter)))
    return Queued(
        lock_name=request.lock_name,
        owner_id=request.owner_id,
        entered_at_ms=entered_at_ms,
        position=position,
        holders=state.holders,
        retry_after_seconds=min(retry_after_seconds, position * _POLL_SECONDS_PER_POSITION),
    )


def _earlier_entry_ms(context: LockContext, request: AcquireRequest) -> int | None:
    """The place that an earlier call got, if the reply with its ticket was lost."""
    items = context.table.query(waiters_of(request.lock_name, request.owner_id))
    waiters = [read_waiter(request.lock_name, item) for item in items]
    return min((waiter.entered_at_ms for waiter in waiters), default=None)


def advise(context: LockContext, request: AcquireRequest, state: LockState) -> int:
    """When to ask again, in whole seconds."""
    return advise_retry_seconds(
        now_ms=context.clock.wall_ms(),
        entered_at_ms=request.entered_at_ms,
        lease_ends_ms=[h.expires_at_ms + context.tolerance_ms for h in state.holders],
        random=context.random,
    )


def _gone_ms(request: AcquireRequest, *, now_ms: int, retry_after_seconds: int) -> int:
    """When the waiter counts as gone; one that polls, after two missed polls."""
    if request.task_token is not None:
        return now_ms + RETENTION_MS
    if request.waiter_timeout_ms is not None:
        return now_ms + request.waiter_timeout_ms
    return now_ms + _POLLS_MISSED * retry_after_seconds * 1000 + _POLL_GRACE_MS
