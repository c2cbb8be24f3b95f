"""Breadth-first search of every state that can be reached, and all searches of the model."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, Protocol, TypeAlias

from tests.model.contention import invariants as of_contention
from tests.model.contention import transitions as contention
from tests.model.contention.configurations import (
    CONFIGURATIONS,
    LARGE,
    Configuration,
)
from tests.model.contention.mutants import MUTANTS as MUTANTS_OF_CONTENTION
from tests.model.contention.transitions import tell
from tests.model.executions import invariants as of_executions
from tests.model.executions import transitions as executions
from tests.model.executions.mutants import MUTANTS as MUTANTS_OF_EXECUTIONS
from tests.model.executions.scenes import KNOWN_GAPS, SCENES, Scene
from tests.model.mutant import Mutant
from tests.model.replay import Names, naming
from tests.support.checkout import Cache, digest_of, files_of_imported_packages
from tests.support.weakened import patched

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


class Checker(Protocol):
    """Names the first invariant that does not hold, if there is one."""

    def broken_by(self, state: State, move: Move) -> StrEnum | None: ...

    def broken_in(self, state: State) -> StrEnum | None: ...

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> StrEnum | None:
        """What is broken in a state from which only these moves lead on."""


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
        world: what may happen.
        checker: what must hold.
        tell: makes a line of each move of a trace.
        counts_orders: whether the report says how many orders there are, which costs memory.
        most_states: after so many the search ends; None for all.
    """

    def __init__(
        self,
        world: World,
        checker: Checker,
        tell: Callable[[Way], Iterable[str]],
        *,
        counts_orders: bool = False,
        most_states: int | None = None,
    ) -> None:
        self._world, self._checker, self._tell = world, checker, tell
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
            trace=tuple(self._tell(way)),
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


# All searches in processes of their own, the longest first, making way for other tests.
#
# `make test` visits the first states of each search, those with the shortest way there; `make
# model` (`FAIRLOCK_SEARCH=all`) visits all. A search reads nothing but modules of this checkout:
# what one found on the same modules before is taken from the cache (`tests/support/checkout.py`).

SEARCHES: Final[dict[str, Configuration | Scene]] = {
    search.name: search for search in (*CONFIGURATIONS, *SCENES, *KNOWN_GAPS)
}
LARGE_SEARCHES: Final = {search.name: search for search in LARGE}
MUTANTS: Final[dict[str, Mutant]] = {**MUTANTS_OF_CONTENTION, **MUTANTS_OF_EXECUTIONS}


def search_protocol(name: str, most_states: int | None = None) -> Report:
    """Searches the protocol as it is."""
    return _run({**SEARCHES, **LARGE_SEARCHES}[name], most_states)


def search_mutant(name: str, most_states: int | None = None) -> Report:
    """Searches the protocol without one of its protections."""
    with patched(MUTANTS[name].patches):
        return _run(MUTANTS[name].narrow_search, most_states)


def search_control(name: str, most_states: int | None = None) -> Report:
    """The same search as a mutant's, but of the protocol as it is."""
    return _run(MUTANTS[name].narrow_search, most_states)


def control_of(name: str) -> str | None:
    """A search of the protocol that contains this mutant's control, if there is one."""
    mutant = MUTANTS[name]
    for search in (*CONFIGURATIONS, *SCENES):
        same = replace(mutant.search, name=search.name, invariants=search.invariants)
        if same == search and mutant.breaks in search.invariants:
            return search.name
    return None


def _run(search: Configuration | Scene, most_states: int | None) -> Report:
    names = Names()
    with naming(names):
        return _prepared(search, names, most_states).run(search.name)


def _prepared(search: Configuration | Scene, names: Names, most_states: int | None) -> Search:
    if isinstance(search, Scene):
        scene = executions.World(search, names)
        checker = of_executions.Checker(scene, search.invariants)
        return Search(scene, checker, scene.tell, counts_orders=True, most_states=most_states)
    world = contention.World(search.clients, search.faults, names, search.begin)
    wanted = of_contention.Checker(world, search.invariants)
    return Search(world, wanted, partial(tell, world), most_states=most_states)


LONGEST_SECONDS: Final = 1_200
"""Of one test: beside others that use all of the machine, a search gets a tenth of it."""
_FIRST: Final = ("an acquire is under way when its execution is stopped", "four share two permits")
_NICENESS: Final = 2
FIRST_STATES: Final = None if os.environ.get("FAIRLOCK_SEARCH") == "all" else 10_000
"""How many states of each search `make test` visits: most searches have fewer."""
FIRST_DURABLE_STATES: Final = FIRST_STATES and 1_000
"""The same of durable executions: each of their states is a replay from the beginning."""

Submit = Callable[[Callable[[str], Report], str], "Future[Report]"]


class Searches:
    """What the searches found; asking for a report waits for it."""

    def __init__(self, submit: Submit) -> None:
        names = [*_FIRST, *(name for name in SEARCHES if name not in _FIRST)]
        self._protocol = {name: submit(_protocol, name) for name in names}
        self._mutants = {name: submit(_mutant, name) for name in MUTANTS}
        alone = [name for name in MUTANTS if control_of(name) is None]
        self._controls = {name: submit(_control, name) for name in alone}

    def protocol(self, name: str) -> Report:
        return self._protocol[name].result(LONGEST_SECONDS)

    def mutant(self, name: str) -> Report:
        return self._mutants[name].result(LONGEST_SECONDS)

    def control(self, name: str) -> Report:
        """The same search as a mutant's, but of the protocol as it is."""
        same = control_of(name)
        if same is not None:
            return self.protocol(same)
        return self._controls[name].result(LONGEST_SECONDS)


def _found(search: Callable[[str, int | None], Report], name: str) -> Report:
    """What a search finds, or has found on the same modules before."""
    whole = f"{search.__name__} {name}"
    first = f"{whole} {FIRST_STATES}"
    for key in (whole, first):
        report = Cache().get(_digest(), key)
        if isinstance(report, Report) and (report.whole or FIRST_STATES):
            return report
    report = search(name, FIRST_STATES)
    Cache().put(_digest(), whole if report.whole else first, report)
    return report


_protocol = partial(_found, search_protocol)
_mutant = partial(_found, search_mutant)
_control = partial(_found, search_control)


@cache
def _digest() -> str:
    """Of the modules that this process has imported for the searches: it does nothing else."""
    return digest_of(files_of_imported_packages())


@contextmanager
def run_searches() -> Iterator[Searches]:
    """Begins all searches."""
    # Spawned, not forked: a fork would inherit the tracing of coverage and be several times slower.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=_begin_process) as pool:
        try:
            yield Searches(pool.submit)
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    os.nice(_NICENESS)
    gc.disable()  # The states are numbers in tuples, without cycles: it would find nothing.
    # A search that does not end takes its process with it, and with it the whole pool.
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS))
