"""Every order in which the steps of a scene can come, each state looked at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.executions.invariants import Judge
from tests.model.executions.scene import Promise, Scene
from tests.model.executions.transitions import Lives, Move, State
from tests.model.request_names import Names, naming


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """What was found.

    Attributes:
        states: how many different states there are.
        orders: in how many orders the steps can come, from the beginning to an end.
        names: of the requests that were made.
        broken: the promise that does not hold at the end of the trace.
        trace: the shortest way there, a line a step.
    """

    states: int
    orders: int
    names: frozenset[str]
    broken: Promise | None = None
    trace: tuple[str, ...] = ()


def explore(scene: Scene) -> Explored:
    """Looks at all states, until a promise is broken."""
    names = Names()
    with naming(names):
        return _Search(Lives(scene, names)).run()


class _Search:
    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._judge = Judge(lives)
        self._from: dict[State, tuple[State, Move] | None] = {lives.start: None}
        self._moves: dict[State, list[State]] = {}

    def run(self) -> Explored:
        level = [self._lives.start]
        while level:
            further: list[State] = []
            for state in level:
                broken = self._look(state, further)
                if broken is not None:
                    return self._report(broken)
            level = further
        return self._report(None)

    def _look(self, state: State, further: list[State]) -> tuple[Promise, State] | None:
        broken = self._judge.of_state(state)
        if broken is not None:
            return broken, state
        moves = list(self._lives.moves(state))
        self._moves[state] = [move.to for move in moves]
        for move in moves:
            if move.to not in self._from:
                self._from[move.to] = (state, move)
                further.append(move.to)
            broken = self._judge.of_step(state, move)
            if broken is not None:
                return broken, move.to
        if not any(move.must for move in moves):
            broken = self._judge.of_rest(state)
        return None if broken is None else (broken, state)

    def _report(self, found: tuple[Promise, State] | None) -> Explored:
        return Explored(
            states=len(self._from),
            orders=count_orders(self._lives.start, self._moves.__getitem__) if not found else 0,
            names=self._lives.calls.names(),
            broken=found[0] if found else None,
            trace=tuple(self._tell(found[1])) if found else (),
        )

    def _tell(self, state: State) -> list[str]:
        lines: list[str] = []
        while (before := self._from[state]) is not None:
            state, move = before
            who = self._lives.scene.cast[move.who].name if move.who >= 0 else "the execution"
            lines.append(f"{who}: {move.name}")
        return lines[::-1]


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
