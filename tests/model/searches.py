"""All searches in processes of their own, the longest first, making way for other tests.

`make test` visits the first states of each search, those with the shortest way there; `make model`
(`FAIRLOCK_SEARCH=all`) visits all. A search reads nothing but modules of this checkout: what one
found on the same modules before is taken from the cache (`tests/support/checkout.py`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Final

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
from tests.model.executions.scene import Scene
from tests.model.executions.scenes import KNOWN_GAPS, SCENES
from tests.model.mutant import Mutant
from tests.model.request_names import Names, naming
from tests.model.search import Report, Search
from tests.support.checkout import Cache, digest_of, files_of_imported_packages

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
    with MUTANTS[name].applied():
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
