"""Breadth-first search of every state that can be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from tests.model.scene import Scene

_Invariant = TypeVar("_Invariant", bound=StrEnum)
State: TypeAlias = Any
"""Whatever a model makes of it; it can be hashed."""
Move: TypeAlias = Any
"""Whatever a model makes of it; `to` is the state that it leads to."""
Way: TypeAlias = Sequence[tuple[State, Move]]
"""Moves, each with the state before it."""


class Model:
    """What is searched: states, moves between them, and what must hold.

    Attributes:
        start: the first state.
    """

    start: State

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def moves(self, state: State) -> Sequence[Move]:
        """Everything that may happen next."""
        return list(self._moves(state))

    def _moves(self, state: State) -> Iterator[Move]:
        raise NotImplementedError

    def request_names(self) -> frozenset[str]:
        """Names of all requests that were made so far."""
        return frozenset()

    def tell(self, way: Way) -> Iterable[str]:
        """A line of each move."""
        return (move.name for _, move in way)

    def broken_by(self, state: State, move: Move) -> StrEnum | None:
        """What a move breaks."""

    def broken_in(self, state: State) -> StrEnum | None:
        """What is broken in a state."""

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> StrEnum | None:
        """What is broken in a state from which only these moves lead on."""

    def pick(self, *found: tuple[_Invariant, bool]) -> _Invariant | None:
        """The first of the wanted invariants that does not hold."""
        wanted = self.scene.invariants
        return next((i for i, holds in found if not holds and i in wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a search found.

    Attributes:
        whole: whether it saw every state; False if it ended at the most that it may see.
        states: how many different states it saw.
        steps: how many moves between them.
        request_names: of the requests that were made.
        broken: the invariant that does not hold at the end of the trace.
        trace: the shortest way there, a line a move.
    """

    name: str
    whole: bool
    states: int
    steps: int
    request_names: frozenset[str]
    broken: StrEnum | None
    trace: tuple[str, ...]


class Search:
    """Visits all states, or the first ones, breadth first, until an invariant is broken.

    After `most_states` it ends; None for all.
    """

    def __init__(self, model: Model, most_states: int | None = None) -> None:
        self._model = model
        self._most_states = math.inf if most_states is None else most_states
        self._before: dict[State, State | None] = {model.start: None}
        self._whole = True
        self._steps = 0

    def run(self) -> Report:
        broken, way = self._first_broken()
        return Report(
            name=self._model.scene.name,
            whole=self._whole,
            states=len(self._before),
            steps=self._steps,
            request_names=self._model.request_names(),
            broken=broken,
            trace=tuple(self._model.tell(way)),
        )

    def _first_broken(self) -> tuple[StrEnum | None, Way]:
        model, before = self._model, self._before
        broken = model.broken_in(model.start)
        if broken is not None:
            return broken, []
        found = [model.start]
        for state in found:
            if len(before) >= self._most_states:
                self._whole = False
                break
            moves = model.moves(state)
            broken = model.broken_at_rest(state, moves)
            if broken is not None:
                return broken, self._way_to(state)
            self._steps += len(moves)
            for move in moves:
                broken = model.broken_by(state, move)
                if move.to not in before:
                    before[move.to] = state
                    found.append(move.to)
                    broken = broken or model.broken_in(move.to)
                if broken is not None:
                    return broken, [*self._way_to(state), (state, move)]
        return None, []

    def _way_to(self, state: State) -> list[tuple[State, Move]]:
        way: list[tuple[State, Move]] = []
        while (before := self._before[state]) is not None:
            way.append((before, next(m for m in self._model.moves(before) if m.to == state)))
            state = before
        return way[::-1]
