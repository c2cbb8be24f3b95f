"""The verdict on an acquire that failed: what the item that it returned means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from fairlock.protocol.lease_time import is_enough, is_over, own_ms
from fairlock.protocol.model import AcquireRequest, Holder, LockState


@dataclass(frozen=True, slots=True)
class AlreadyHolder:
    """The caller was granted the lock before: the reply to an earlier call was lost.

    Attributes:
        is_fresh: whether the caller may rely on the grant as it stands. Not if half of the lease is
            over; nor if the caller is a workflow that is woken by its task token: the hand-off may
            be about to be marked as undelivered.
    """

    holder: Holder
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class LeasesOver:
    """Enough leases are over that the caller may take a place, if their workflows are over too.

    Attributes:
        evictable: the candidates, the one whose lease ended first in front.
        needed: how many of them must leave before there is a permit.
    """

    evictable: tuple[Holder, ...]
    needed: int


class Situation(Enum):
    """Why a permit was not granted, if neither an earlier grant nor the end of a lease says why."""

    ALREADY_RELEASED = auto()
    """The caller released this acquisition before: this call is a delayed duplicate."""
    FREE = auto()
    """A permit is free, and nobody waits: ask again."""
    FREE_FOR_WAITERS = auto()
    """A permit is free, but others came first: it goes to the oldest waiter, not to the caller."""
    BUSY = auto()
    """All permits are out, by the caller's limit or by that of a holder."""


Verdict = AlreadyHolder | LeasesOver | Situation


def judge(state: LockState, request: AcquireRequest, *, date_ms: int) -> Verdict:
    """Why an attempt to take a permit failed on this state.

    A holder relies on its lease for less long than everybody else waits, see `lease_time.py`. The
    stored lease of the holder counts, never the contender's.

    Args:
        state: as the refusal of the attempt shows it.
        request: of the attempt.
        date_ms: the Date of that refusal.
    """
    mine = state.holder(request.owner_id)
    if mine is not None:
        left_ms = own_ms(mine.lease_ms, mine.expires_at_ms, date_ms=date_ms)
        is_fresh = request.task_token is None and is_enough(left_ms, mine.lease_ms)
        return AlreadyHolder(mine, is_fresh=is_fresh)
    if state.last_released == request.owner_id:
        return Situation.ALREADY_RELEASED
    if state.has_room(request.limit):
        return Situation.FREE_FOR_WAITERS if state.contended else Situation.FREE
    over = [h for h in state.holders if is_over(h.expires_at_ms, date_ms=date_ms)]
    needed = state.held - state.limit_for(request.limit) + 1
    if len(over) >= needed:
        return LeasesOver(tuple(sorted(over, key=lambda h: h.expires_at_ms)), needed)
    return Situation.BUSY
