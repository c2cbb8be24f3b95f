"""All searches in processes of their own, the longest first, making way for other tests.

`make test` visits the first states of each search, those with the shortest way there; `make model`
(`FAIRLOCK_SEARCH=all`) visits all. A search reads nothing but modules of this checkout: what one
found on the same modules before is taken from the cache (`tests/support/cache.py`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Final

from tests.model.catalogue import (
    MUTANTS,
    SEARCHES,
    control_of,
    search_control,
    search_mutant,
    search_protocol,
)
from tests.model.search import Report
from tests.support.cache import Cache, digest_of, files_of_imported_packages

LONGEST_SECONDS: Final = 1_200
"""Of one test: beside others that use all of the machine, a search gets a tenth of it."""
_FIRST: Final = ("an acquire is under way when its execution is stopped", "four share two permits")
_NICENESS: Final = 2
FIRST_STATES: Final = None if os.environ.get("FAIRLOCK_SEARCH") == "all" else 10_000
"""How many states of each search `make test` visits: most searches have fewer."""

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
