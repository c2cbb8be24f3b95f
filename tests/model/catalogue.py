"""All searches by their names, to be run in whatever process it is wanted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from tests.model.contention import invariants as of_contention
from tests.model.contention import transitions as contention
from tests.model.contention.configurations import (
    CONFIGURATIONS,
    LARGE,
    Configuration,
)
from tests.model.contention.mutants import MUTANTS as MUTANTS_OF_CONTENTION
from tests.model.contention.traces import tell
from tests.model.executions import invariants as of_executions
from tests.model.executions import transitions as executions
from tests.model.executions.mutants import MUTANTS as MUTANTS_OF_EXECUTIONS
from tests.model.executions.scene import Scene
from tests.model.executions.scenes import KNOWN_GAPS, SCENES
from tests.model.mutant import Mutant
from tests.model.request_names import Names, naming
from tests.model.search import Report, Search

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
