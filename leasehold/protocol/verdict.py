"""What the item returned by a failed acquire means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leasehold.protocol.model import AcquireRequest, Holder, LockState


@dataclass(frozen=True, slots=True)
class AlreadyHolder:
    """The caller was granted the lock before: the reply to an earlier call was lost.

    Attributes:
        holder: the caller.
        is_fresh: whether it may rely on the grant as it stands. Not if half of the lease is over,
            by whoever's clock it was written; nor if it is a workflow that is told by its task
            token: whoever handed it the lock may be about to note that nobody heard of that.
    """

    holder: Holder
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class AlreadyReleased:
    """The caller released this acquisition before: this call is a delayed duplicate."""


@dataclass(frozen=True, slots=True)
class LeasesOver:
    """Enough leases are over that the caller may take a place, if their workflows are over too.

    Attributes:
        evictable: the candidates, the one whose lease ended first in front.
        needed: how many of them must leave before there is a permit.
    """

    evictable: tuple[Holder, ...]
    needed: int


@dataclass(frozen=True, slots=True)
class Free:
    """A permit is free, and nobody waits: ask again."""


@dataclass(frozen=True, slots=True)
class FreeForWaiters:
    """A permit is free, but others came first: it goes to the oldest waiter, not to the caller."""


@dataclass(frozen=True, slots=True)
class Busy:
    """All permits are out."""


Verdict = AlreadyHolder | AlreadyReleased | Free | FreeForWaiters | LeasesOver | Busy


def judge(
    state: LockState, request: AcquireRequest, *, now_ms: int, is_over: Callable[[Holder], bool]
) -> Verdict:
    """Why the claim of a permit failed on this state.

    A holder considers its own lease over at its end; everybody else waits longer, as `is_over`
    says. It is the stored lease of the holder that counts, never the contender's.
    """
    mine = state.holder(request.owner_id)
    if mine is not None:
        half_ms = mine.lease_ms // 2
        is_fresh = request.task_token is None and mine.expires_at_ms >= now_ms + half_ms
        return AlreadyHolder(mine, is_fresh=is_fresh)
    if state.last_released == request.owner_id:
        return AlreadyReleased()
    if state.held < request.limit:
        return FreeForWaiters() if state.contended else Free()
    over = [holder for holder in state.holders if is_over(holder)]
    needed = state.held - request.limit + 1
    if len(over) >= needed:
        return LeasesOver(tuple(sorted(over, key=lambda h: h.expires_at_ms)), needed)
    return Busy()
