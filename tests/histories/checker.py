"""Decides whether a history is linearizable for a lock with a limit and rising fencing tokens.

A history is linearizable if each call can be given one moment between its beginning and its answer
so that the answers are right when the calls happen at these moments, one after the other. Calls of
unknown outcome may have happened at any time after their beginning, or not at all.

What is right, in the order of the moments:

* A grant: fewer hold than the limit of the owner and of each holder, the token is above all before
  it, and the owner has not left.
  A repeated grant of a holder has the same token.
  A ceiling counts as one more limit, from the moment of its call to that of the next one.
* A refusal of an acquire: the limit is reached, or the owner has left. In a history with waiters
  a refusal is always right: the lock is theirs although a permit is free.
* A renewal: the owner holds. A release: the owner holds, or has left by a release before.
* A heartbeat or a release that is refused: the owner does not hold, or its lease is over.
* A holder leaves by a release, or at any moment after the end of the lease that it was promised. An
  owner that was promised nothing may leave at any moment: its caller may have undone the acquire.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.histories.calls import Answer, Call, Kind


@dataclass(frozen=True, slots=True)
class Violation:
    """No order explains this answer, with all that were given before it."""

    call: Call
    why: str


class _State(NamedTuple):
    """How things may stand at a moment: one of several possibilities.

    Attributes:
        grants: how many of the known tokens have been given, in their order.
        last: the highest token so far.
        holders: who holds, of the owners that were ever told anything.
        left: who of them held once.
        happened: calls that have had their moment, but not yet their answer, by their number.
        untold: how many owners hold that were told nothing: they cannot be told apart.
        untold_grants: how many such owners were ever granted.
        ceiling: what an operator has set; None if nothing.
    """

    grants: int = 0
    last: int = -1
    holders: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    happened: frozenset[int] = frozenset()
    untold: int = 0
    untold_grants: int = 0
    ceiling: int | None = None


def find_violation(
    history: Sequence[Call], *, limit: int, with_waiters: bool = False
) -> Violation | None:
    """The first answer that no order of the calls explains; None if the history is linearizable.

    Args:
        history: all calls on one lock name, in any order.
        limit: of all callers, but for acquires that name another one, at most this.
        with_waiters: whether another caller may have waited in the queue.
    """
    return _Check(history, limit, with_waiters=with_waiters).run()


class _Check:
    """Goes through the history in the order of time, with all states that are possible by then."""

    def __init__(self, history: Sequence[Call], limit: int, *, with_waiters: bool) -> None:
        told = {
            call.owner
            for call in history
            if call.answer is not Answer.UNKNOWN or call.kind is Kind.CEILING
        }
        self._calls = sorted(
            (call for call in history if call.owner in told and not _means_nothing(call)),
            key=lambda call: call.began,
        )
        self._limit = limit
        self._limits = {
            call.owner: call.limit
            for call in history
            if call.limit is not None and call.kind is Kind.ACQUIRE
        }
        self._has_writers = 1 in self._limits.values()
        self._with_waiters = with_waiters
        self._token_of = {call.owner: call.token for call in self._calls if call.token is not None}
        self._order = sorted(self._token_of, key=lambda owner: self._token_of[owner])
        self._last_answer = max((call.ended for call in history if call.owner in told), default=0)
        self._untold_begin = _untold_begin(history, told)
        self._refused = {n for n, call in enumerate(self._calls) if call.answer is Answer.REFUSED}
        self._last_refusal = max((self._calls[n].ended for n in self._refused), default=-math.inf)
        self._pending: set[int] = set()
        self._promises: dict[str, list[int]] = defaultdict(list)
        for number, call in enumerate(self._calls):
            if call.answer is Answer.DONE and call.kind is not Kind.RELEASE:
                self._promises[call.owner].append(number)

    def run(self) -> Violation | None:
        if wrong := self._wrong_tokens():
            return wrong
        answers = [n for n, call in enumerate(self._calls) if call.answer is not Answer.UNKNOWN]
        answers.sort(key=lambda number: self._calls[number].ended)
        states, begun = {_State()}, 0
        for number in answers:
            call = self._calls[number]
            while begun < len(self._calls) and self._calls[begun].began <= call.ended:
                self._pending.add(begun)
                begun += 1
            states = self._after(states, number)
            self._pending.discard(number)
            if not states:
                return Violation(call, "no order of the calls explains this answer")
        return None

    def _wrong_tokens(self) -> Violation | None:
        owners: dict[int, str] = {}
        for call in self._calls:
            if call.token is None:
                continue
            if owners.setdefault(call.token, call.owner) != call.owner:
                return Violation(call, "another owner has the same token")
            if self._token_of[call.owner] != call.token:
                return Violation(call, "the same owner has another token")
        return None

    def _after(self, states: set[_State], number: int) -> set[_State]:
        """All states in which the call has had its moment, which is the last one so far."""
        now = self._calls[number].ended
        found: set[_State] = set()
        stack = list({self._settled(state, now) for state in states})
        seen = set(stack)
        while stack:
            state = stack.pop()
            if number in state.happened:
                found.add(state._replace(happened=state.happened - {number}))
                continue
            for following in self._following(state, now):
                settled = self._settled(following, now)
                if settled not in seen:
                    seen.add(settled)
                    stack.append(settled)
        return self._not_dominated(found)

    def _not_dominated(self, states: set[_State]) -> set[_State]:
        """The states from which everything can follow that can follow from the others."""
        alike: dict[object, list[_State]] = defaultdict(list)
        for state in states:
            happened = state.happened - self._refused
            alike[state.grants, state.holders, state.left, happened, state.ceiling].append(state)
        kept: set[_State] = set()
        for group in alike.values():
            best: list[_State] = []
            for state in group:
                if not any(_dominates(other, state) for other in best):
                    best = [other for other in best if not _dominates(state, other)]
                    best.append(state)
            kept.update(best)
        return kept

    def _settled(self, state: _State, now: float) -> _State:
        """The state with all calls in it that are right, change nothing, and so need not wait."""
        right = [
            number
            for number in self._pending - state.happened
            if self._changes_nothing(state, self._calls[number], now)
        ]
        return state._replace(happened=state.happened.union(right)) if right else state

    def _changes_nothing(self, state: _State, call: Call, now: float) -> bool:
        if call.answer is Answer.REFUSED:
            return self._is_refused(state, call, now)
        is_renewed = call.kind is Kind.HEARTBEAT and call.owner in state.holders
        # A promise that no end of a lease can fall behind is none to wait for.
        return is_renewed and self._promised(call.owner, state, now) > self._last_answer

    def _following(self, state: _State, now: float) -> Iterator[_State]:
        open_calls = self._pending - state.happened
        for owner in state.holders:
            if self._promised(owner, state, now) <= now:
                yield _without(state, owner)
        for number in open_calls:
            after = self._after_call(state, self._calls[number])
            if after is not None:
                yield after._replace(happened=after.happened | {number})
        if state.untold:
            yield state._replace(untold=state.untold - 1)
        if self._may_grant_untold(state, now):
            yield state._replace(
                last=state.last + 1,
                untold=state.untold + 1,
                untold_grants=state.untold_grants + 1,
            )

    def _may_grant_untold(self, state: _State, now: float) -> bool:
        """Whether an owner that was told nothing may be granted the lock, and it matters.

        The only use of such a grant is that it explains refusals. A refusal may begin long after
        the grant, and after grants of higher tokens: so it is not enough to look at open refusals.
        """
        explains = now <= self._last_refusal
        has_begun = bisect_right(self._untold_begin, now) > state.untold_grants
        is_free = self._held(state) < _below(state, self._limit)
        return explains and has_begun and is_free and state.last + 1 < self._next_token(state)

    def _next_token(self, state: _State) -> float:
        """The token of the next grant that a caller was told of."""
        is_last = state.grants == len(self._order)
        return math.inf if is_last else self._token_of[self._order[state.grants]]

    def _promised(self, owner: str, state: _State, now: float) -> float:
        """Until when an owner was promised the lock by all that has happened."""
        promises = [
            self._calls[number].held_until
            for number in self._promises[owner]
            if number in state.happened
            or (number not in self._pending and self._calls[number].began <= now)
        ]
        return max(promises, default=now)

    def _after_call(self, state: _State, call: Call) -> _State | None:
        """The state after a call that was not refused; None if its answer would be wrong."""
        if call.answer is Answer.REFUSED:
            return None
        if call.kind is Kind.CEILING:
            return state._replace(ceiling=call.limit)
        if call.kind is Kind.ACQUIRE:
            return self._granted(state, call.owner)
        if call.owner in state.holders:
            return state if call.kind is Kind.HEARTBEAT else _without(state, call.owner)
        has_left = call.kind is Kind.RELEASE and call.owner in state.left
        return state if has_left and call.answer is Answer.DONE else None

    def _is_refused(self, state: _State, call: Call, now: float) -> bool:
        if call.kind is not Kind.ACQUIRE:
            is_over = call.owner not in state.holders
            return is_over or self._promised(call.owner, state, now) <= now
        # Of an owner that was told nothing the limit is not known: it may be a writer.
        may_write = state.untold and self._has_writers
        most = 1 if may_write else self._most(state, call.owner)
        is_full = self._held(state) >= _below(state, most)
        return self._with_waiters or call.owner in state.left or is_full

    def _granted(self, state: _State, owner: str) -> _State | None:
        if owner in state.holders:
            return state
        token = self._token_of.get(owner, state.last + 1)
        is_known = owner in self._token_of
        is_full = self._held(state) >= _below(state, self._most(state, owner))
        if owner in state.left or is_full or token <= state.last:
            return None
        if is_known and self._order[state.grants] != owner:
            return None  # A lower token is still to come, and would come too late.
        return state._replace(
            grants=state.grants + is_known, last=token, holders=state.holders | {owner}
        )

    def _most(self, state: _State, owner: str) -> int:
        """How many may hold once this owner does."""
        return min(self._limits.get(each, self._limit) for each in (owner, *state.holders))

    @staticmethod
    def _held(state: _State) -> int:
        return len(state.holders) + state.untold


def _means_nothing(call: Call) -> bool:
    """Whether a call shows nothing and changes nothing that any caller is notified of."""
    return call.kind is Kind.HEARTBEAT and call.answer is Answer.UNKNOWN


def _untold_begin(history: Sequence[Call], told: set[str]) -> list[float]:
    """When the owners first asked that were never told anything."""
    first: dict[str, float] = {}
    for call in history:
        if call.kind is Kind.ACQUIRE and call.owner not in told:
            first[call.owner] = min(call.began, first.get(call.owner, call.began))
    return sorted(first.values())


def _dominates(state: _State, other: _State) -> bool:
    """Whether it can become the other one, alike but for refusals and for owners told nothing.

    An owner that was told nothing may leave at any moment; and one more of them may come in.
    """
    more = max(0, other.untold - state.untold)
    return (
        state.happened >= other.happened
        and state.untold_grants + more <= other.untold_grants
        and state.last + more <= other.last
    )


def _below(state: _State, limit: int) -> int:
    """The limit, or the ceiling if that is lower."""
    return limit if state.ceiling is None else min(limit, state.ceiling)


def _without(state: _State, owner: str) -> _State:
    return state._replace(holders=state.holders - {owner}, left=state.left | {owner})
