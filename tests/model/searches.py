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
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Final

from tests.model.contention import invariants as contention
from tests.model.contention.configurations import CONFIGURATIONS, LARGE
from tests.model.contention.mutants import MUTANTS as MUTANTS_OF_CONTENTION
from tests.model.durable import world as durable
from tests.model.durable.scenes import DURABLE_MUTANTS, DURABLE_SCENES, DurableScene
from tests.model.executions import invariants as executions
from tests.model.executions.mutants import MUTANTS as MUTANTS_OF_EXECUTIONS
from tests.model.executions.scenes import KNOWN_GAPS, SCENES, ExecutionScene
from tests.model.replay import Names, naming
from tests.model.scene import Mutant, Scene
from tests.model.search import Model, Report, Search
from tests.support.checkout import Cache, digest_of, files_of_imported_packages
from tests.support.weakened import Patch, patched

HOLDING: Final = (*CONFIGURATIONS, *SCENES, *DURABLE_SCENES)
"""Each search finds nothing."""
SEARCHES: Final[dict[str, Scene]] = {scene.name: scene for scene in (*HOLDING, *KNOWN_GAPS)}
BY_NAME_ONLY: Final[dict[str, Scene]] = {scene.name: scene for scene in LARGE}
MUTANTS: Final[dict[str, Mutant]] = {
    **MUTANTS_OF_CONTENTION,
    **MUTANTS_OF_EXECUTIONS,
    **DURABLE_MUTANTS,
}


def control_of(name: str) -> str:
    """The search of the protocol as it is that a mutant has to differ from."""
    mutant = MUTANTS[name]
    for scene in HOLDING:
        same = replace(mutant.scene, name=scene.name, invariants=scene.invariants)
        if same == scene and mutant.breaks in scene.invariants:
            return scene.name
    return f"control of {name}"


def run(scene: Scene, most_states: int | None = None, patches: Iterable[Patch] = ()) -> Report:
    """Searches the protocol as it is, or without one of its protections."""
    names: Names = {}
    with patched(patches), naming(names):
        return Search(_model(scene, names), most_states).run()


def _model(scene: Scene, names: Names) -> Model:
    if isinstance(scene, ExecutionScene):
        return executions.CheckedWorld(scene, names)
    if isinstance(scene, DurableScene):
        return durable.World(scene)
    return contention.CheckedWorld(scene, names)


def run_named(name: str, most_states: int | None = None) -> Report:
    """Any search, any mutant, or the control of one."""
    if name in MUTANTS:
        return run(MUTANTS[name].scene, most_states, MUTANTS[name].patches)
    of_mutant = MUTANTS.get(name.removeprefix("control of "))
    return run(of_mutant.scene if of_mutant else (SEARCHES | BY_NAME_ONLY)[name], most_states)


LONGEST_SECONDS: Final = 1_200
"""Of one test: beside others that use all of the machine, a search gets a tenth of it."""
_FIRST: Final = ("an acquire is under way when its execution is stopped", "four share two permits")
"""The longest begin first."""
_SEES_ALL: Final = os.environ.get("FAIRLOCK_SEARCH") == "all"


def _first_states(name: str) -> int | None:
    """How many states `make test` visits: most searches have fewer; None for all.

    Each state of a durable execution is a replay from the beginning.
    """
    is_durable = name in {scene.name for scene in DURABLE_SCENES}
    return None if _SEES_ALL else 1_000 if is_durable else 10_000


class Searches:
    """What the searches found; asking for a report waits for it."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        controls = (control_of(name) for name, mutant in MUTANTS.items() if mutant.patches)
        names = dict.fromkeys((*_FIRST, *SEARCHES, *MUTANTS, *controls))
        self._found = {name: pool.submit(_known, name) for name in names}

    def of(self, name: str) -> Report:
        """Of a search, of a mutant, or of its control."""
        return self._found[name].result(LONGEST_SECONDS)


def _known(name: str) -> Report:
    """What a search finds, or has found on the same modules before."""
    most = _first_states(name)
    first = f"{name} {most}"
    for key in (name, first):
        report = Cache().get(_digest(), key)
        if isinstance(report, Report):
            return report
    report = run_named(name, most)
    Cache().put(_digest(), name if report.whole else first, report)
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
