"""How long a holder may rely on a grant, and what is done if a wrong clock has written its end.

The first write of a process knows nothing of AWS's time, and goes by the wall clock. Its answer has
a Date. If the end that was written is wrong by that, the holder writes it once more, now that it
knows better: one request more, for wrong clocks only. A holder that dies in between keeps the lock
taken for as long as its clock was ahead: 5 minutes at most, because AWS refuses the requests of a
clock that is wrong by more.
"""

from __future__ import annotations

from dataclasses import replace

from fairlock.dynamodb.lock_table import Written
from fairlock.protocol.holders import read_holder
from fairlock.protocol.lease_time import is_enough, own_ms, was_written_by_a_wrong_clock
from fairlock.protocol.model import Grant, Holder
from fairlock.protocol.permits import correct_grant
from fairlock.protocol.requests import Answer
from fairlock.store.context import LockContext


def shown(grant: Grant, *, sent: float, date_ms: int) -> Grant:
    """A grant with its owner's own end, by an answer of that Date to a request of ours."""
    own = own_ms(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms)
    return replace(grant, since=sent, own_ms=own)


def has_enough_left(grant: Grant, *, now: float) -> bool:
    """Whether its owner may begin to rely on a grant; else it renews the lease before."""
    return is_enough((grant.ends_at - now) * 1000, grant.lease_ms)


def with_right_end(
    context: LockContext,
    lock_name: str,
    holder: Holder,
    answer: Answer,
    *,
    first_of_all: bool = False,
) -> Grant | None:
    """The grant that this caller has just written, once its end is right.

    Args:
        context: the table.
        lock_name: the lock.
        holder: as it was written.
        answer: to that write.
        first_of_all: whether its fencing token was made from the clock.

    Returns:
        None if somebody has changed the grant since.
    """
    grant = Grant.of(lock_name, holder)
    date_ms = context.date_ms(answer)
    if was_written_by_a_wrong_clock(grant.lease_ms, grant.expires_at_ms, date_ms=date_ms):
        update = correct_grant(
            lock_name, holder, raises_token=first_of_all, now_ms=context.aws_clock.now_ms()
        )
        answer = context.table.update(update)
        if not isinstance(answer, Written):
            return None
        grant = Grant.of(lock_name, read_holder(answer.item, holder.owner_id))
        date_ms = context.date_ms(answer)
    return shown(grant, sent=answer.sent, date_ms=date_ms)
