"""All searches run in processes of their own, the longest first, and make way for other tests.

Tests of other suites may wait for seconds of real time in the same moment: a search never does.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.model.catalogue import control_of, run_configuration, run_control, run_mutant
from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.contention.mutants import MUTANTS
from tests.model.executions.mutants import SCENE_MUTANTS, explore_control, explore_mutant
from tests.model.executions.scenes import REAPING, SCENES
from tests.model.explore import Explored, explore
from tests.model.known_gaps import KNOWN_GAPS
from tests.model.search import Report

Reports = dict[str, "Future[Report]"]
Explorations = dict[str, "Future[Explored]"]
_LONGEST = "four share two permits"
_LONGEST_SCENE = REAPING[0]
_NICENESS = 2
_PATIENCE_SECONDS = 1_200
"""Of one test: beside others who use all of the machine, a search gets a tenth of it."""


class Searches:
    """What the searches found; asking for a report waits for it."""

    def __init__(self, submit: Callable[..., Future[Any]]) -> None:
        longest = submit(explore, _LONGEST_SCENE)
        names = [c.name for c in (*CONFIGURATIONS, *KNOWN_GAPS)]
        names.sort(key=lambda name: name != _LONGEST)
        self._searches: Reports = {name: submit(run_configuration, name) for name in names}
        self._mutants: Reports = {name: submit(run_mutant, name) for name in MUTANTS}
        alone = [name for name in MUTANTS if control_of(name) is None]
        self._controls: Reports = {name: submit(run_control, name) for name in alone}
        self._scenes: Explorations = {_LONGEST_SCENE.name: longest} | {
            scene.name: submit(explore, scene) for scene in SCENES if scene is not _LONGEST_SCENE
        }
        self._scene_mutants: Explorations = {
            name: submit(explore_mutant, name) for name in SCENE_MUTANTS
        }
        self._scene_controls: Explorations = {
            name: submit(explore_control, name) for name in SCENE_MUTANTS
        }

    def configuration(self, name: str) -> Report:
        return self._searches[name].result()

    def mutant(self, name: str) -> Report:
        return self._mutants[name].result()

    def scene(self, name: str) -> Explored:
        return self._scenes[name].result()

    def scene_mutant(self, name: str) -> tuple[Explored, Explored]:
        """What was found without a protection, and with it."""
        return self._scene_mutants[name].result(), self._scene_controls[name].result()

    def control(self, name: str) -> Report:
        same = control_of(name)
        return self._controls[name].result() if same is None else self.configuration(same)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called for the tests of all suites."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(_PATIENCE_SECONDS))


def make_way() -> None:
    """Begins a process that searches."""
    os.nice(_NICENESS)
    gc.disable()  # The states are numbers in tuples, without cycles: it would find nothing.


@pytest.fixture(scope="session")
def searches() -> Iterator[Searches]:
    # Spawned, not forked: a fork would inherit the tracing of coverage and be several times slower.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, initializer=make_way) as pool:
        yield Searches(pool.submit)
        pool.shutdown(cancel_futures=True)
