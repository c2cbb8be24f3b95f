"""All searches of the model by name, and the processes that run them.

`make test` visits the first states of each search, those with the shortest way there; `make model`
(`FAIRLOCK_SEARCH=all`) visits all. A search reads nothing but modules of this checkout: what one
found on the same modules before is taken from the cache (`tests/support/checkout.py`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Final

from tests.model.contention import invariants as of_contention
from tests.model.contention import transitions as contention
from tests.model.contention.configurations import CONFIGURATIONS, LARGE, Configuration
from tests.model.contention.mutants import MUTANTS as MUTANTS_OF_CONTENTION
from tests.model.durable import world as durable
from tests.model.durable.scenes import DURABLE_MUTANTS, DURABLE_SCENES, DurableScene
from tests.model.executions import invariants as of_executions
from tests.model.executions import transitions as executions
from tests.model.executions.mutants import MUTANTS as MUTANTS_OF_EXECUTIONS
from tests.model.executions.scenes import KNOWN_GAPS, SCENES, Scene
from tests.model.mutant import Mutant
from tests.model.replay import Names, naming
from tests.model.search import Report, Search
from tests.support.checkout import Cache, digest_of, files_of_imported_packages
from tests.support.weakened import Patch, patched

Given = Configuration | Scene | DurableScene
SEARCHES: Final[dict[str, Given]] = {
    search.name: search for search in (*CONFIGURATIONS, *SCENES, *KNOWN_GAPS)
}
MUTANTS: Final[dict[str, Mutant]] = {**MUTANTS_OF_CONTENTION, **MUTANTS_OF_EXECUTIONS}
BY_NAME_ONLY: Final[dict[str, Given]] = {search.name: search for search in LARGE}
DURABLE: Final[dict[str, Given]] = {scene.name: scene for scene in DURABLE_SCENES}


def run(given: Given, most_states: int | None = None, patches: Iterable[Patch] = ()) -> Report:
    """Searches the protocol as it is, or without one of its protections."""
    names = Names()
    with patched(patches), naming(names):
        return _prepared(given, names, most_states).run(given.name)


def _prepared(given: Given, names: Names, most: int | None) -> Search:
    wanted = given.invariants
    if isinstance(given, Scene):
        scene = executions.World(given, names)
        checker = of_executions.Checker(scene, wanted)
        return Search(scene, checker, counts_orders=True, most_states=most)
    if isinstance(given, DurableScene):
        replays = durable.World(given)
        return Search(replays, durable.Checker(replays, wanted), most_states=most)
    world = contention.World(given.clients, given.faults, names, given.begin)
    return Search(world, of_contention.Checker(world, wanted), most_states=most)


def run_named(name: str, most_states: int | None = None) -> Report:
    """Any search, or any mutant."""
    mutant = {**MUTANTS, **DURABLE_MUTANTS}.get(name)
    if mutant is not None:
        return run(mutant.narrow_search, most_states, mutant.patches)
    return run({**SEARCHES, **BY_NAME_ONLY, **DURABLE}[name], most_states)


def run_control(name: str, most_states: int | None = None) -> Report:
    """The same search as a mutant's, but of the protocol as it is."""
    return run(MUTANTS[name].narrow_search, most_states)


def control_of(name: str) -> str | None:
    """A search of the protocol that contains this mutant's control, if there is one."""
    mutant = MUTANTS[name]
    for search in (*CONFIGURATIONS, *SCENES):
        same = replace(mutant.search, name=search.name, invariants=search.invariants)
        if same == search and mutant.breaks in search.invariants:
            return search.name
    return None


LONGEST_SECONDS: Final = 1_200
"""Of one test: beside others that use all of the machine, a search gets a tenth of it."""
_FIRST: Final = ("an acquire is under way when its execution is stopped", "four share two permits")
"""The longest begin first."""
FIRST_STATES: Final = None if os.environ.get("FAIRLOCK_SEARCH") == "all" else 10_000
"""How many states of each search `make test` visits: most searches have fewer."""
FIRST_DURABLE_STATES: Final = FIRST_STATES and 1_000
"""The same of durable executions: each of their states is a replay from the beginning."""


class Searches:
    """What the searches found; asking for a report waits for it."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        names = [*_FIRST, *(name for name in SEARCHES if name not in _FIRST), *MUTANTS]
        self._found = {name: pool.submit(_known, name) for name in names}
        self._controls: dict[str, Future[Report]] = {
            name: pool.submit(_known, name, is_control=True)
            for name in MUTANTS
            if control_of(name) is None
        }

    def of(self, name: str) -> Report:
        """Of a search, or of a mutant."""
        return self._found[name].result(LONGEST_SECONDS)

    def control(self, name: str) -> Report:
        """The same search as a mutant's, but of the protocol as it is."""
        same = control_of(name)
        return self._controls[name].result(LONGEST_SECONDS) if same is None else self.of(same)


def _known(name: str, *, is_control: bool = False) -> Report:
    """What a search finds, or has found on the same modules before."""
    whole = f"control of {name}" if is_control else name
    first = f"{whole} {FIRST_STATES}"
    for key in (whole, first):
        report = Cache().get(_digest(), key)
        if isinstance(report, Report) and (report.whole or FIRST_STATES):
            return report
    report = (run_control if is_control else run_named)(name, FIRST_STATES)
    Cache().put(_digest(), whole if report.whole else first, report)
    return report


@cache
def _digest() -> str:
    """Of the modules that this process has imported for the searches: it does nothing else."""
    return digest_of(files_of_imported_packages())


@contextmanager
def run_searches() -> Iterator[Searches]:
    """Begins all searches, in processes of their own that make way for other tests."""
    # Spawned, not forked: a fork would inherit the tracing of coverage and be several times slower.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=_begin_process) as pool:
        try:
            yield Searches(pool)
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    os.nice(2)
    gc.disable()  # The states are numbers in tuples, without cycles: it would find nothing.
    # A search that does not end takes its process with it, and with it the whole pool.
    resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_SECONDS, LONGEST_SECONDS))
