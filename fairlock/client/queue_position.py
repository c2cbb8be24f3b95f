"""How many waiters are in front of one, and so when it polls next."""

from __future__ import annotations

from fairlock.backoff import Random, poll_seconds
from fairlock.client.local_waiters import LocalQueue
from fairlock.protocol.model import SeenLock


class QueuePosition:
    """The position of one waiter: counted when it joins, and lower by one with each grant.

    The fencing token, which each poll reads anyway, counts the grants. A waiter in front that gives
    up is no grant, so the position may be too high, until a poll shows the waiter at the head. A
    position that was counted while others joined may be too low.

    Args:
        queue: what this client knows of the lock.
        began: reading of the monotonic clock at which the acquisition began.
    """

    def __init__(self, queue: LocalQueue, *, began: float) -> None:
        self._queue = queue
        self._began = began
        self._position = 1
        self._token = 0
        self._joined_token: int | None = None

    @property
    def ahead(self) -> int:
        """How many waiters are in front, as far as is known."""
        return max(0, self._position - 1 - self._queue.grants_since(self._token))

    def note(self, position: int, seen: SeenLock) -> None:
        """The position as it was counted, in the queue of this lock or a moment later."""
        self._position, self._token = position, seen.state.fencing_token
        if self._joined_token is None:
            self._joined_token = self._token

    def correct(self, owner_id: str, seen: SeenLock) -> bool:
        """Corrects the position by the head of the queue; returns whether it must be counted anew.

        Clients that join at the same moment do not count each other.
        """
        oldest = [waiter.request.owner_id for waiter in seen.waiters]
        if owner_id in oldest:
            self.note(oldest.index(owner_id) + 1, seen)
            return False
        return self.ahead < len(oldest)

    def seconds_to_poll(
        self, now: float, *, longest: float, until_free: float, random: Random
    ) -> float:
        """How long to wait before the next poll; see `poll_seconds`."""
        token = self._joined_token
        return poll_seconds(
            unchanged=now - max(self._queue.changed_at, self._began),
            ahead=self.ahead,
            served=0 if token is None else self._queue.grants_since(token),
            waited=now - self._began,
            seconds_per_grant=self._queue.seconds_per_grant,
            longest=longest,
            until_free=until_free,
            random=random,
        )
