"""Breadth-first search of every state that can be reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeVar

_Invariant = TypeVar("_Invariant", bound=StrEnum)
State: TypeAlias = Any
"""Whatever a world makes of it; it can be hashed."""
Move: TypeAlias = Any
"""Whatever a world makes of it; `to` is the state that it leads to."""
Way: TypeAlias = Sequence[tuple[State, Move]]
"""Moves, each with the state before it."""


class World(Protocol):
    """What is searched."""

    @property
    def start(self) -> State: ...

    def moves(self, state: State) -> Sequence[Move]:
        """Everything that may happen next."""

    def request_names(self) -> frozenset[str]:
        """Names of all requests that were made so far."""

    def tell(self, way: Way) -> Iterable[str]:
        """A line of each move."""


class Checker:
    """Names the first of the wanted invariants that does not hold, if there is one."""

    def __init__(self, wanted: frozenset[StrEnum]) -> None:
        self.wanted = wanted

    def broken_by(self, state: State, move: Move) -> StrEnum | None:
        """What a move breaks."""

    def broken_in(self, state: State) -> StrEnum | None:
        """What is broken in a state."""

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> StrEnum | None:
        """What is broken in a state from which only these moves lead on."""

    def pick(self, *found: tuple[_Invariant, bool]) -> _Invariant | None:
        """The first that does not hold."""
        return next((i for i, holds in found if not holds and i in self.wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a search found.

    Attributes:
        whole: whether it saw every state; False if it ended at the most that it may see.
        states: how many different states it saw.
        steps: how many moves between them.
        orders: in how many orders the moves can come, from the start to an end, if it was asked.
        request_names: of the requests that were made.
        broken: the invariant that does not hold at the end of the trace.
        trace: the shortest way there, a line a move.
    """

    name: str
    whole: bool
    states: int
    steps: int
    orders: int
    request_names: frozenset[str]
    broken: StrEnum | None
    trace: tuple[str, ...]


class Search:
    """Visits all states, or the first ones, until an invariant is broken.

    Args:
        counts_orders: whether the report says how many orders there are, which costs memory.
        most_states: after so many the search ends; None for all.
    """

    def __init__(
        self,
        world: World,
        checker: Checker,
        *,
        counts_orders: bool = False,
        most_states: int | None = None,
    ) -> None:
        self._world, self._checker = world, checker
        self._before: dict[State, State | None] = {world.start: None}
        self._after: dict[State, list[State]] | None = {} if counts_orders else None
        self._most_states = math.inf if most_states is None else most_states
        self._whole = True
        self._steps = 0

    def run(self, name: str) -> Report:
        broken, way = self._search()
        orders = 0
        if self._after is not None and broken is None and self._whole:
            orders = count_orders(self._world.start, self._after.__getitem__)
        return Report(
            name=name,
            whole=self._whole,
            states=len(self._before),
            steps=self._steps,
            orders=orders,
            request_names=self._world.request_names(),
            broken=broken,
            trace=tuple(self._world.tell(way)),
        )

    def _search(self) -> tuple[StrEnum | None, Way]:
        level = [self._world.start]
        broken = self._checker.broken_in(self._world.start)
        if broken is not None:
            return broken, []
        while level:
            following: list[State] = []
            for state in level:
                if len(self._before) >= self._most_states:
                    self._whole = False
                    return None, []
                moves = self._world.moves(state)
                broken = self._checker.broken_at_rest(state, moves)
                if broken is not None:
                    return broken, self._way_to(state)
                broken, move = self._take(state, moves, following)
                if broken is not None:
                    return broken, [*self._way_to(state), (state, move)]
            level = following
        return None, []

    def _take(
        self, state: State, moves: Sequence[Move], following: list[State]
    ) -> tuple[StrEnum | None, Move]:
        """Takes all moves of a state; returns the first that breaks something, and what."""
        before, checker = self._before, self._checker
        self._steps += len(moves)
        if self._after is not None:
            self._after[state] = [move.to for move in moves]
        for move in moves:
            broken = checker.broken_by(state, move)
            if move.to not in before:
                before[move.to] = state
                following.append(move.to)
                broken = broken or checker.broken_in(move.to)
            if broken is not None:
                return broken, move
        return None, None

    def _way_to(self, state: State) -> list[tuple[State, Move]]:
        way: list[tuple[State, Move]] = []
        while (before := self._before[state]) is not None:
            way.append((before, next(m for m in self._world.moves(before) if m.to == state)))
            state = before
        return way[::-1]


def count_orders(start: State, following: Callable[[State], list[State]]) -> int:
    """How many ways lead from the start to states from which none leads on; fails on a circle."""
    orders: dict[State, int] = {}
    entered: set[State] = set()
    todo = [start]
    while todo:
        state = todo[-1]
        if state in orders:
            todo.pop()
        elif state in entered:
            orders[state] = sum(orders[after] for after in following(state)) or 1
            todo.pop()
        else:
            entered.add(state)
            todo += [after for after in following(state) if after not in orders]
    return orders[start]
