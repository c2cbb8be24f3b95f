"""The same decision as `checker.py`, by trying every order: slow, short, and written apart.

Nothing is shared with the checker but the calls. For histories of a few calls only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.histories.calls import Answer, Call, Kind


@dataclass
class SimpleLock:
    """A lock whose calls come one after the other."""

    limit: int
    with_waiters: bool
    highest: int = -1
    tokens: dict[str, int] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    former: tuple[str, ...] = ()
    limits: dict[str, int] = field(default_factory=dict)

    def copy(self) -> SimpleLock:
        tokens, promised = dict(self.tokens), dict(self.promised)
        return SimpleLock(
            self.limit, self.with_waiters, self.highest, tokens, promised, self.former, self.limits
        )

    def end(self, owner: str) -> None:
        del self.tokens[owner]
        self.former += (owner,)

    def takes(self, call: Call, token: int | None, at: float) -> bool:
        """Does what the call does at this moment; whether its answer is right."""
        most = min(self.limits.get(each, self.limit) for each in (call.owner, *self.tokens))
        holds, full = call.owner in self.tokens, len(self.tokens) >= most
        was_here, done = call.owner in self.former, call.answer is Answer.DONE
        if call.answer is Answer.REFUSED:
            if call.kind is Kind.ACQUIRE:
                return full or self.with_waiters or was_here
            return not holds or self.promised.get(call.owner, 0.0) <= at
        if call.kind is Kind.RELEASE:
            if holds:
                self.end(call.owner)
            return holds or (was_here and done)
        if call.kind is Kind.ACQUIRE and not holds:
            new = self.highest + 1 if token is None else token
            if full or was_here or new <= self.highest:
                return False
            self.highest = self.tokens[call.owner] = new
            holds = True
        if done:
            before = self.promised.get(call.owner, call.held_until)
            self.promised[call.owner] = max(before, call.held_until)
        return holds


def has_an_order(history: Sequence[Call], *, limit: int, with_waiters: bool = False) -> bool:
    """Whether the calls can have happened one after the other, each within its time."""
    per_owner = {(call.owner, call.token) for call in history if call.token is not None}
    token_of = dict(per_owner)
    if len(token_of) < len(per_owner):
        return False
    limits = {call.owner: call.limit for call in history if call.limit is not None}
    lock = SimpleLock(limit, with_waiters, limits=limits)
    return _goes_on(list(history), token_of, lock, -math.inf)


def _goes_on(left: list[Call], token_of: dict[str, int], lock: SimpleLock, now: float) -> bool:
    """Tries each call, and each end of a lease, as the next one."""
    if all(call.answer is Answer.UNKNOWN for call in left):
        return True
    latest = min(call.ended for call in left)
    for call in left:
        is_refused = call.answer is Answer.REFUSED and call.kind is not Kind.ACQUIRE
        lease_end = lock.promised.get(call.owner, now) if is_refused else now
        rest = [other for other in left if other is not call]
        for at in {max(now, call.began), max(now, call.began, lease_end)}:
            after = lock.copy()
            if at > latest or not after.takes(call, token_of.get(call.owner), at):
                continue
            if _goes_on(rest, token_of, after, at):
                return True
    for owner in lock.tokens:
        at = max(now, lock.promised.get(owner, now))
        if at <= latest:
            after = lock.copy()
            after.end(owner)
            if _goes_on(left, token_of, after, at):
                return True
    return False
