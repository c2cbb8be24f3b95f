"""The checker of histories: against brute force, and against violations that were put in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

import pytest

from tests.histories.calls import Answer, Call, Kind
from tests.histories.checker import find_violation

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


NUMBER = 10_000
DONE, REFUSED, UNKNOWN = Answer.DONE, Answer.REFUSED, Answer.UNKNOWN


def call(
    kind: Kind, owner: str, began: float, ended: float, answer: Answer, **fields: float
) -> Call:
    ended = math.inf if answer is UNKNOWN else ended
    return Call(kind=kind, owner=owner, answer=answer, began=began, ended=ended, **fields)  # type: ignore[arg-type]  # token is a whole number


def granted(owner: str, token: int, began: float, ended: float, until: float = math.inf) -> Call:
    return call(Kind.ACQUIRE, owner, began, ended, DONE, token=token, held_until=until)


def refused(owner: str, began: float, ended: float) -> Call:
    return call(Kind.ACQUIRE, owner, began, ended, REFUSED)


def lost(owner: str, began: float) -> Call:
    return call(Kind.ACQUIRE, owner, began, math.inf, UNKNOWN)


def renewed(
    owner: str, began: float, ended: float, *, answer: Answer = DONE, until: float = math.inf
) -> Call:
    return call(Kind.HEARTBEAT, owner, began, ended, answer, held_until=until)


def released(owner: str, began: float, ended: float, answer: Answer = DONE) -> Call:
    return call(Kind.RELEASE, owner, began, ended, answer)


def paused(began: float, ended: float, answer: Answer = DONE, *, limit: int | None = 0) -> Call:
    return replace(call(Kind.CEILING, f"operator {began}", began, ended, answer), limit=limit)


ANNA = [granted("anna", 1, 0, 1), released("anna", 4, 5)]
LEASE_ENDS = granted("anna", 1, 0, 1, until=4)
MOST_READERS = 3
READS, WRITES = replace(ANNA[0], limit=MOST_READERS), replace(ANNA[0], limit=1)

RIGHT: dict[str, tuple[list[Call], int]] = {
    "a reader beside a reader": (
        [READS, replace(granted("ben", 2, 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "a writer that is refused beside a reader": (
        [READS, replace(refused("ben", 2, 3), limit=1)],
        MOST_READERS,
    ),
    "one after the other": ([*ANNA, granted("ben", 2, 6, 7)], 1),
    "granted before the release is answered": ([*ANNA, granted("ben", 2, 2, 4.5)], 1),
    "two beside each other, of two permits": ([*ANNA, granted("ben", 2, 2, 3)], 2),
    "refused while another holds": ([*ANNA, refused("ben", 2, 3)], 1),
    "refused because of an acquire whose reply was lost": (
        [lost("anna", 0), refused("b", 2, 3)],
        1,
    ),
    "an acquire of unknown outcome that never happened": ([lost("a", 0), granted("b", 2, 3, 4)], 1),
    "a release of unknown outcome that happened": (
        [ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4)],
        1,
    ),
    "a release that is repeated after a lost reply": (
        [ANNA[0], released("anna", 2, 0, UNKNOWN), granted("ben", 2, 3, 4), released("anna", 5, 6)],
        1,
    ),
    "granted after the end of the lease": ([LEASE_ENDS, granted("ben", 2, 3, 5)], 1),
    "a heartbeat that comes too late": (
        [LEASE_ENDS, granted("ben", 2, 4, 5), renewed("anna", 6, 7, answer=REFUSED)],
        1,
    ),
    "a lost reply, and the same token for the same owner": (
        [lost("anna", 0), granted("anna", 1, 2, 3), granted("anna", 1, 4, 5)],
        1,
    ),
}
RIGHT |= {
    "refused because of a lost acquire that came before a later grant": (
        [
            *ANNA,
            lost("ben", 5),
            granted("carl", 3, 6, 7),
            refused("dora", 8, 9),
            released("carl", 10, 11),
            granted("emil", 4, 12, 13),
        ],
        2,
    ),
    "refused while the lock is paused": ([*ANNA, paused(6, 7), refused("ben", 8, 9)], 1),
    "granted in the moment of a pause": ([*ANNA, paused(6, 9), granted("ben", 2, 7, 8)], 1),
    "granted after the pause": (
        [*ANNA, paused(6, 7), paused(8, 9, limit=None), granted("ben", 2, 10, 11)],
        1,
    ),
    "granted because a resume of unknown outcome happened": (
        [*ANNA, paused(6, 7), paused(8, 0, UNKNOWN, limit=None), granted("ben", 2, 10, 11)],
        1,
    ),
    "a holder of a paused lock renews": ([ANNA[0], paused(2, 3), renewed("anna", 4, 5)], 1),
}
WRONG: dict[str, tuple[list[Call], int]] = {
    "granted while the lock is paused": ([*ANNA, paused(6, 7), granted("ben", 2, 8, 9)], 1),
    "granted above a ceiling": (
        [ANNA[0], paused(2, 2.5, limit=1), granted("ben", 2, 3, 3.5)],
        2,
    ),
    "refused after the pause": (
        [*ANNA, paused(6, 7), paused(8, 9, limit=None), refused("ben", 10, 11)],
        1,
    ),
    "a writer beside a reader": (
        [READS, replace(granted("ben", 2, 2, 3), limit=1)],
        MOST_READERS,
    ),
    "a reader beside a writer": (
        [WRITES, replace(granted("ben", 2, 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "a reader that is refused beside a reader": (
        [READS, replace(refused("ben", 2, 3), limit=MOST_READERS)],
        MOST_READERS,
    ),
    "two inside": ([*ANNA, granted("ben", 2, 2, 3)], 1),
    "three inside, of two permits": (
        [*ANNA, granted("ben", 2, 2, 3), granted("carl", 3, 2, 3)],
        2,
    ),
    "the token goes back": (
        [granted("anna", 5, 0, 1), released("anna", 2, 3), granted("b", 4, 4, 5)],
        1,
    ),
    "a token used twice": ([*ANNA, granted("ben", 1, 6, 7)], 1),
    "another token for the same owner": ([granted("anna", 1, 0, 1), granted("anna", 2, 2, 3)], 1),
    "a release of another's lock": ([*ANNA, released("ben", 2, 3)], 1),
    "granted because another's release was obeyed": (
        [ANNA[0], released("ben", 2, 3, UNKNOWN), granted("carl", 2, 4, 5)],
        1,
    ),
    "a release that is refused while the owner holds": (
        [ANNA[0], released("anna", 2, 3, REFUSED)],
        1,
    ),
    "renewed after the release": ([*ANNA, renewed("anna", 6, 7)], 1),
    "granted again after the release": ([*ANNA, granted("anna", 1, 6, 7)], 1),
    "refused although the lock is free": ([*ANNA, refused("ben", 6, 7)], 1),
    "granted before the end of the lease": ([LEASE_ENDS, granted("ben", 2, 2, 3)], 1),
    "granted before the end of a renewed lease": (
        [LEASE_ENDS, renewed("anna", 2, 3, until=9), granted("ben", 2, 5, 6)],
        1,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_a_lock_can_have_is_accepted(name: str) -> None:
    history, limit = RIGHT[name]
    assert find_violation(history, limit=limit) is None
    assert has_an_order(history, limit=limit)


@pytest.mark.parametrize("name", WRONG)
def test_a_violation_is_found(name: str) -> None:
    history, limit = WRONG[name]
    assert find_violation(history, limit=limit) is not None
    assert not has_an_order(history, limit=limit)


def test_a_refusal_of_a_free_lock_is_right_only_where_someone_may_wait() -> None:
    history = [refused("ben", 0, 1)]
    assert find_violation(history, limit=1) is not None
    assert find_violation(history, limit=1, with_waiters=True) is None


def test_the_violation_names_the_first_answer_that_nothing_explains() -> None:
    second = granted("ben", 2, 2, 3)
    violation = find_violation([*ANNA, second, granted("carl", 3, 6, 7)], limit=1)
    assert violation is not None
    assert violation.call == second


def test_the_checker_agrees_with_brute_force_on_ten_thousand_small_histories() -> None:
    verdicts: Counter[bool] = Counter()
    for history, limit in small_histories(NUMBER, seed=7):
        expected = has_an_order(history, limit=limit)
        found = find_violation(history, limit=limit)
        assert (found is None) == expected, (limit, history, found)
        verdicts[expected] += 1
    assert min(verdicts.values()) > NUMBER / 5, verdicts


def test_of_histories_with_ceilings_too_the_checker_agrees_with_brute_force() -> None:
    verdicts: Counter[bool] = Counter()
    for history, limit in small_histories(NUMBER, seed=9, ceilings=True):
        expected = has_an_order(history, limit=limit)
        assert (find_violation(history, limit=limit) is None) == expected, (limit, history)
        verdicts[expected] += 1
    assert min(verdicts.values()) > NUMBER / 10, verdicts


def test_of_readers_and_writers_the_checker_finds_no_violation_that_brute_force_does_not() -> None:
    """It finds nearly all: of an owner that was told nothing it does not know whether it writes."""
    verdicts: Counter[tuple[bool, bool]] = Counter()
    for history, limit in small_histories(NUMBER, seed=8, writers=True):
        found = find_violation(history, limit=limit)
        verdicts[has_an_order(history, limit=limit), found is None] += 1
    assert verdicts[True, False] == 0
    assert verdicts[False, True] < NUMBER / 100
    assert min(verdicts[True, True], verdicts[False, False]) > NUMBER / 5, verdicts
