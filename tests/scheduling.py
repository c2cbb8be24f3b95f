"""Which process runs what in `pytest -n`, and what comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

WHOLE_SUITES: Final = ("e2e/roles/", "e2e/", "smoke/", "model/", "unit/cdk/")
"""Each is run by one process, because its tests share a deployment, searches or a synthesis.

The longest come first, so that the others fill the time beside them.
"""

WITHIN_A_SUITE: Final = (
    # All others.
    (),
    # Most of these tests wait, and are begun with the first test of the suite.
    ("e2e/attacks/", "e2e/guard/test_waiting.py", "e2e/lifetimes/test_workflow_deaths.py"),
    # This measures when nothing else is under way.
    ("e2e/lifetimes/test_keep_alive.py",),
)
"""Files in the order in which they come in their suites."""
OTHERS: Final = WITHIN_A_SUITE.index(())

WITHOUT_COVERAGE: Final = (
    "unit/aio/test_embedded.py",
    "unit/client/test_interrupts.py",
    "unit/client/test_resources.py",
    "unit/durable/test_kills.py",
    "unit/dynamodb/test_create_table.py",
    "unit/guarded/",
    "unit/lambdas/test_reap_handler.py",
    "unit/store/",
    "unit/wire/test_rules.py",
)
"""Files of tests/unit that run without coverage, as all suites do but unit and contracts: tracing
doubles the time of a test, and what these execute is measured by others as well."""


EMULATOR: Final = "testbed/localaws/"

RUN_ONCE: Final = (
    "clocks/",
    "fuzz/",
    "model/",
    "packaging/test_app.py",
    "packaging/test_asset.py",
    "packaging/test_handlers_alone.py",
    "property/",
    "simulation/",
    "typing/",
    EMULATOR,
)
"""What `make test` leaves out if it passed on the same files before.

These read files of this checkout alone, so they end the same way. Those of the embedded AWS take
real time too, but test a tool: they run again after a change of it.
"""


CHECKOUT: Final = Path(__file__).resolve().parents[1]


def file_below(path: Path) -> str:
    """A file of tests: its path below `tests/`, or below the checkout."""
    return path.relative_to(CHECKOUT).as_posix().removeprefix("tests/")


def is_covered(file: str) -> bool:
    """Whether a file of tests runs in `make covered`, or in `make uncovered`."""
    return file.startswith(("contracts/", "unit/")) and not file.startswith(WITHOUT_COVERAGE)


def runs_once(item: pytest.Item) -> bool:
    return file_below(item.path).startswith(RUN_ONCE)


class SuiteScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Hands out whole suites where tests share something dear, and single files elsewhere."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].removeprefix("tests/")
        suites = (suite for suite in WHOLE_SUITES if file.startswith(suite))
        return next(suites, file)


def rank(item: pytest.Item) -> tuple[int, int]:
    """Sorts the tests by suite and by what they wait for."""
    file = file_below(item.path)
    suites, within = enumerate(WHOLE_SUITES), enumerate(WITHIN_A_SUITE)
    suite = next((at for at, suite in suites if file.startswith(suite)), len(WHOLE_SUITES))
    return suite, next((at for at, files in within if file.startswith(files)), OTHERS)
