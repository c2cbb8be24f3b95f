"""What is answered, and the verdict on an acquire that failed, by the item that it returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from fairlock.clock import is_enough, is_over, own_ms
from fairlock.protocol.admission import is_outdated
from fairlock.protocol.model import (
    AcquireRequest,
    Acquisition,
    Ceiling,
    Grant,
    Holder,
    LockState,
    SeenLock,
    Waiter,
)


class RefusalReason(StrEnum):
    """Why acquire was refused."""

    HELD = "HELD"
    """All permits are out."""
    ALREADY_RELEASED = "ALREADY_RELEASED"
    """This acquisition was released before: a delayed duplicate must not take the lock again."""
    QUEUE_FULL = "QUEUE_FULL"
    """All permits are out, and as many wait as may wait: the caller did not join the queue."""
    ASK_AGAIN = "ASK_AGAIN"
    """This call may be a late copy: others have left since the time at which it says it was made,
    or that time is in the future. A caller that still wants the lock makes another call."""
    SUPERSEDED = "SUPERSEDED"
    """A higher version than the caller's was granted: the caller is never granted this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Acquisition):
    """No: the caller does not hold the lock, and nothing was written for it.

    Attributes:
        retry_after_seconds: when to ask again, in whole seconds, already jittered.
        liveness_unknown: how many holders count as alive only because Step Functions did not say.
        called_at_ms: AWS's time, for the next call of a caller that is to ask again.
        newest: the highest version that was granted, if the caller asks for the newest only.
    """

    reason: RefusalReason
    holders: tuple[Holder, ...] = ()
    retry_after_seconds: int = 1
    liveness_unknown: int = 0
    called_at_ms: int | None = None
    ceiling: Ceiling | None = None
    newest: int | None = None

    @classmethod
    def of_late_call(cls, request: AcquireRequest, *, now_ms: int) -> Refusal:
        """The answer to a call that may be a late copy, with the time for a caller that lives."""
        name, owner_id = request.lock_name, request.owner_id
        reason = RefusalReason.ASK_AGAIN
        return cls(lock_name=name, owner_id=owner_id, reason=reason, called_at_ms=now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(Acquisition):
    """Not yet: the caller is in the queue, and will be handed the lock in its order.

    Attributes:
        entered_at_ms: the ticket; asking again with it keeps the place.
        position: 1 is next; None if it was not needed, and so not counted.
        retry_after_seconds: when a waiter without a task token must ask again to keep its place.
        seen: the lock with the caller in its queue; None if the caller was handed it meanwhile.
    """

    entered_at_ms: int
    position: int | None
    holders: tuple[Holder, ...]
    retry_after_seconds: int
    ceiling: Ceiling | None = None
    seen: SeenLock | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOff:
    """A permit went to the oldest waiter, which has waited for so long since its entry."""

    grant: Grant
    waiter: Waiter
    waited_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Acquisition):
    """Yes: this acquisition is over.

    Attributes:
        gave_back: whether this call has ended a grant; not if it repeats an earlier one, or if the
            acquisition was still waiting.
        held_ms: how long the permit was held, if one was given back and that was asked for.
        left_queue: whether it was still waiting.
        fencing_token: of the grant that ended; None as `held_ms`.
    """

    gave_back: bool = False
    held_ms: int | None = None
    left_queue: bool = False
    fencing_token: int | None = None
    execution_arn: str | None = None


class NotHeld(Acquisition):
    """No: this owner does not hold the lock. No holder and no waiter was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """How many permits and places in queues were freed, and whether that was all there was."""

    holders: int = 0
    waiters: int = 0
    complete: bool = True


@dataclass(frozen=True, slots=True)
class AlreadyHolder:
    """The caller was granted the lock before: the reply to an earlier call was lost.

    If the grant `is_fresh`, the caller may rely on it as it stands. Not if half of the lease is
    over; nor if it is a workflow that is woken by its task token: the hand-off may be about to be
    marked as undelivered; nor if its version is not marked as granted by itself.
    """

    holder: Holder
    is_fresh: bool


@dataclass(frozen=True, slots=True)
class LeasesOver:
    """Enough leases are over that the caller may take a place, if their workflows are over too.

    The one whose lease ended first is in front; `needed` of them must leave to free a permit.
    """

    evictable: tuple[Holder, ...]
    needed: int


class Situation(Enum):
    """Why a permit was not granted, if neither an earlier grant nor the end of a lease says why."""

    ALREADY_RELEASED = auto()
    """The caller released this acquisition before: this call is a delayed duplicate."""
    OUTDATED = auto()
    """Others have left since the time at which the caller says it called: this may be a delayed
    duplicate, of whichever acquisition. Nothing is written for it."""
    SUPERSEDED = auto()
    """A higher version than the caller's was granted."""
    FREE = auto()
    """A permit is free, and no one waits: ask again."""
    FREE_FOR_WAITERS = auto()
    """A permit is free, but others came first: it goes to the oldest waiter, not to the caller."""
    BUSY = auto()
    """All permits are out, by the caller's limit or by that of a holder."""


Verdict = AlreadyHolder | LeasesOver | Situation


def judge(state: LockState, request: AcquireRequest, *, date_ms: int) -> Verdict:
    """Why an attempt to take a permit failed on this state.

    By the Date of the refusal that shows the state. A holder relies on its lease for less long than
    everybody else waits, see `clock.py`. Its stored lease counts, never the contender's.
    """
    mine = state.holder(request.owner_id)
    if mine is not None:
        left_ms = own_ms(mine.lease_ms, mine.expires_at_ms, date_ms=date_ms)
        is_marked = request.only_newest is None or state.newest_token == mine.fencing_token
        is_fresh = request.task_token is None and is_marked and is_enough(left_ms, mine.lease_ms)
        return AlreadyHolder(mine, is_fresh=is_fresh)
    if state.has_left(request.owner_id):
        return Situation.ALREADY_RELEASED
    if state.supersedes(request.only_newest):
        if not state.is_telling(date_ms=date_ms):
            return Situation.SUPERSEDED
        # While it is unknown whether the newest lives, the caller waits with the others, or asks
        # again. One that does not wait is refused: a free permit would not be granted to it.
        if not request.waits:
            return Situation.BUSY
    found = _room_for(state, request, date_ms=date_ms)
    if found is Situation.BUSY and not request.waits:
        return found
    is_late = is_outdated(state, request.called_at_ms, date_ms=date_ms)
    return Situation.OUTDATED if is_late else found


def _room_for(state: LockState, request: AcquireRequest, *, date_ms: int) -> LeasesOver | Situation:
    if state.has_room(request.limit):
        return Situation.FREE_FOR_WAITERS if state.contended else Situation.FREE
    over = [h for h in state.holders if is_over(h.expires_at_ms, date_ms=date_ms)]
    needed = state.held - state.limit_for(request.limit) + 1
    if len(over) >= needed:
        return LeasesOver(tuple(sorted(over, key=lambda h: h.expires_at_ms)), needed)
    return Situation.BUSY
