"""Breadth-first search: every state that can be reached, and the shortest way to a broken one."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.contention.clients import Client
from tests.model.contention.faults import Faults
from tests.model.contention.invariants import Checker, Property
from tests.model.contention.traces import tell
from tests.model.contention.transitions import Move, State, World
from tests.model.request_names import Names, naming

ALL: frozenset[Property] = frozenset(Property)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Who contends, what may go wrong, and what is looked at."""

    name: str
    clients: tuple[Client, ...]
    faults: Faults = field(default_factory=Faults)
    properties: frozenset[Property] = ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a search found.

    Attributes:
        states: how many different states it saw.
        steps: how many steps between them.
        names: of the steps that were taken.
        broken: the property that does not hold in the last state of the trace.
        trace: the shortest way there, a line a step.
    """

    name: str
    states: int
    steps: int
    names: frozenset[str]
    broken: Property | None = None
    trace: tuple[str, ...] = ()


def search(configuration: Configuration) -> Report:
    """Looks at all states, until a property is broken."""
    names = Names()
    with naming(names):
        return _Search(configuration, names).run()


class _Search:
    def __init__(self, configuration: Configuration, names: Names) -> None:
        self._name = configuration.name
        self._world = World(configuration.clients, configuration.faults, names)
        self._checker = Checker(self._world, configuration.properties)
        self._seen: dict[State, State | None] = {self._world.start: None}
        self._steps = 0

    def run(self) -> Report:
        level = [self._world.start]
        while level:
            level, broken = self._next_level(level)
            if broken is not None:
                state, move, which = broken
                return self._report(which, tuple(tell(self._world, self._way_to(state, move))))
        return self._report()

    def _next_level(
        self, level: list[State]
    ) -> tuple[list[State], tuple[State, Move, Property] | None]:
        found: list[State] = []
        seen, checker = self._seen, self._checker
        for state in level:
            for move in self._world.moves(state):
                self._steps += 1
                after = move.to
                broken = checker.broken_by_change(state, after) if after[0] != state[0] else None
                if after not in seen:
                    seen[after] = state
                    found.append(after)
                    broken = broken or checker.broken_in(after)
                if broken is not None:
                    return [], (state, move, broken)
        return found, None

    def _way_to(self, state: State, last: Move) -> list[tuple[State, Move]]:
        way = [(state, last)]
        while (before := self._seen[state]) is not None:
            move = next(m for m in self._world.moves(before) if m.to == state)
            way.append((before, move))
            state = before
        return way[::-1]

    def _report(self, broken: Property | None = None, trace: tuple[str, ...] = ()) -> Report:
        return Report(
            name=self._name,
            states=len(self._seen),
            steps=self._steps,
            names=frozenset(call.name for call in self._world.progress.calls),
            broken=broken,
            trace=trace,
        )
