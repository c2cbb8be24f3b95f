"""Random histories of a few calls: what a true lock answers, mostly changed in places."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.histories.calls import Answer, Call, Kind

_LEASES = (1, 2, math.inf)


_READERS: Final = 3


def small_histories(
    number: int, *, seed: int, writers: bool = False, ceilings: bool = False
) -> Iterator[tuple[list[Call], int]]:
    """So many histories, each with its limit; with readers and writers, or with ceilings."""
    random = Random(seed)  # noqa: S311 - no secret
    for _ in range(number):
        limit = _READERS if writers else random.choice((1, 1, 2))
        history = _true_history(random, limit, writers=writers, ceilings=ceilings)
        for _ in range(random.randrange(4)):
            history = _changed(random, history)
        yield history, limit


def _true_history(
    random: Random, limit: int, *, writers: bool, ceilings: bool = False
) -> list[Call]:
    """Calls of a few owners, whose moments are 1, 2, 3 …, each with some time before and after."""
    holders: dict[str, float] = {}
    own = {f"owner {n}": random.choice((1, limit)) if writers else limit for n in (1, 2, 3)}
    history: list[Call] = []
    highest, ceiling = 10, _READERS
    for moment in range(1, random.randint(4, 7)):
        if ceilings and random.random() < 0.4:
            new = random.choice((0, 1, None))
            ceiling = _READERS if new is None else new
            call = Call(
                kind=Kind.CEILING,
                owner=f"operator {moment}",
                answer=Answer.DONE,
                began=moment - random.choice((0, 0, 1)),
                ended=moment + random.choice((0, 0, 1)),
                limit=new,
            )
            history.append(_forgotten(call) if random.random() < 0.15 else call)
            continue
        for owner, until in list(holders.items()):
            if until <= moment and random.random() < 0.5:
                del holders[owner]
        owner = f"owner {random.randint(1, 3)}"
        asked = any(call.owner == owner for call in history)
        kind = random.choice((Kind.HEARTBEAT, Kind.RELEASE)) if asked else Kind.ACQUIRE
        until, token = moment + random.choice(_LEASES), None
        most = min(ceiling, *(own[each] for each in (owner, *holders)))
        right = owner in holders or (kind is Kind.ACQUIRE and len(holders) < most)
        if kind is Kind.ACQUIRE and right:
            highest = token = highest + random.randint(1, 2)
        if kind is Kind.RELEASE:
            holders.pop(owner, None)
        elif right:
            holders[owner] = max(until, holders.get(owner, 0.0))
        call = Call(
            kind=kind,
            owner=owner,
            answer=Answer.DONE if right else Answer.REFUSED,
            began=moment - random.choice((0, 0, 1)),
            ended=moment + random.choice((0, 0, 1)),
            token=token,
            held_until=until,
            limit=own[owner] if writers and kind is Kind.ACQUIRE else None,
        )
        history.append(_forgotten(call) if random.random() < 0.15 else call)
    return history


def _forgotten(call: Call) -> Call:
    """The call, as one whose answer was lost."""
    return replace(call, answer=Answer.UNKNOWN, ended=math.inf, token=None, held_until=math.inf)


def _changed(random: Random, history: list[Call]) -> list[Call]:
    """The history with one call changed, which may make it wrong."""
    at = random.randrange(len(history))
    call, other = history[at], random.choice(history)
    match random.randrange(4):
        case 0 if call.token is not None:
            change = replace(call, token=call.token + random.choice((-2, -1, 1, 2)))
        case 1 if call.token is not None and other.token is not None:
            change = replace(call, token=other.token)
        case 2 if call.answer is Answer.DONE and call.kind is not Kind.CEILING:
            change = replace(call, answer=Answer.REFUSED, token=None)
        case 2 if call.answer is Answer.REFUSED and call.kind is not Kind.ACQUIRE:
            change = replace(call, answer=Answer.DONE)
        case _ if call.answer is not Answer.UNKNOWN:
            moved = random.choice((-2, -1, 1, 2))
            change = replace(call, began=call.began + moved, ended=call.ended + moved)
        case _:
            change = call
    return [*history[:at], change, *history[at + 1 :]]


# The same decision as `checker.py`, by trying every order: slow, short, and written apart.
#
# Nothing is shared with the checker but the calls. For histories of a few calls only.


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
    ceiling: int | None = None

    def copy(self) -> SimpleLock:
        tokens, promised = dict(self.tokens), dict(self.promised)
        return SimpleLock(
            self.limit,
            self.with_waiters,
            self.highest,
            tokens,
            promised,
            self.former,
            self.limits,
            self.ceiling,
        )

    def end(self, owner: str) -> None:
        del self.tokens[owner]
        self.former += (owner,)

    def takes(self, call: Call, token: int | None, at: float) -> bool:
        """Does what the call does at this moment; whether its answer is right."""
        if call.kind is Kind.CEILING:
            self.ceiling = call.limit
            return True
        most = min(self.limits.get(each, self.limit) for each in (call.owner, *self.tokens))
        most = most if self.ceiling is None else min(most, self.ceiling)
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
    acquires = [call for call in history if call.kind is Kind.ACQUIRE]
    limits = {call.owner: call.limit for call in acquires if call.limit is not None}
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
