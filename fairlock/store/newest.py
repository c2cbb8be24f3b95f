"""Newest only: the version of an acquisition, and the waiters that a newer one supersedes.

Each departure finds them where it reads the queue. They are taken out of it and told after the hand
-off, outside of its transaction: its write has decided already that they are never granted the
lock. So if this process dies in between, they are found by the next departure, or by their own
question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from fairlock.aws.executions import Delivery
from fairlock.protocol.leaving import Departing, DepartingHolder
from fairlock.protocol.model import BY_TIME, AcquireRequest, LockState, SeenLock, Waiter
from fairlock.protocol.outcomes import Refusal
from fairlock.protocol.schema import lock_key
from fairlock.protocol.waiters import MOST_DELETES
from fairlock.store.context import LockContext, WaitersSuperseded

_MOST_TOLD: Final = MOST_DELETES
"""By one departure, one message after the other. The others learn it when they ask."""


def with_version(context: LockContext, request: AcquireRequest) -> AcquireRequest:
    """The request with its version: its place in the queue, or the present, if it names none.

    A version that is ahead of AWS's time would supersede those that begin after it. So a process
    that does not know that time reads once.
    """
    if request.only_newest != BY_TIME:
        return request
    version = request.claimed_at_ms or request.ticket
    if version is None and context.aws_clock.edges_ms() is None:
        context.table.read(lock_key(request.lock_name))
    return replace(request, only_newest=version or context.aws_clock.now_ms())


def is_superseded(seen: SeenLock, version: int) -> bool:
    """Whether a lock that was seen like this is never granted to a waiter with this version."""
    is_telling = seen.state.is_telling(date_ms=seen.date_ms or 0)
    return seen.state.supersedes(version) and not is_telling


@dataclass(slots=True)
class SupersededWaiters:
    """Waiters of one lock that are never granted it, as they were found in its queue.

    Attributes:
        newest: the version that was granted.
    """

    newest: int = 0
    _found: dict[str, Waiter] = field(default_factory=dict)
    """By the sort key."""

    def add(self, waiter: Waiter, newest: int) -> None:
        """Notes a waiter, and the version that supersedes it."""
        self._found[waiter.sort_key] = waiter
        self.newest = max(self.newest, newest)

    def tell(
        self, context: LockContext, *, requester: str | None, time_is_over: Callable[[], bool]
    ) -> None:
        """Tells those that sleep on a task token; never fails. Polling ones see it for themselves.

        Args:
            context: the table and its services.
            requester: owner_id of a waiter that is asking at this moment, and will be answered.
            time_is_over: whether the departure has no more time for messages.
        """
        told, names = 0, {waiter.request.lock_name for waiter in self._found.values()}
        for waiter in [*self._found.values()][:_MOST_TOLD]:
            request = waiter.request
            if time_is_over():
                break
            if request.task_token is not None and request.owner_id != requester:
                refusal = Refusal.of_superseded(request, self.newest)
                delivery = context.workflows.wake_waiter(request.task_token, refusal)
                told += delivery is Delivery.DELIVERED
        for lock_name in names:
            context.observe(
                WaitersSuperseded(
                    lock_name=lock_name, newest=self.newest, waiters=len(self._found), told=told
                )
            )


def if_it_stands(departing: Departing | None, state: LockState) -> Departing | None:
    """The departing holder, with what is to be put back only if no other owner has set it since."""
    if not isinstance(departing, DepartingHolder):
        return departing
    if state.newest_token == departing.holder.fencing_token:
        return departing
    return replace(departing, unlearned=None)
