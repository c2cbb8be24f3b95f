"""Which process runs what in `pytest -n`, and what comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

WHOLE_SUITES: Final = ("e2e/lifetimes", "e2e/roles", "e2e", "smoke", "model", "unit/cdk")
"""Each is run by one process, because its tests share a deployment, searches or a synthesis.

The longest come first, so that the others fill the time beside them.
"""

NOT_MEASURED: Final = (
    "behaviour/",
    "conventions/",
    "e2e/",
    "fuzz/",
    "histories/",
    "model/",
    "property/",
    "smoke/",
    "unit/aio/test_embedded.py",
    "unit/aio/test_many_locks.py",
    "unit/cdk/test_optimistic_nesting.py",
    "unit/cdk/test_security.py",
    "unit/client/test_contention.py",
    "unit/client/test_interrupts.py",
    "unit/client/test_many_locks.py",
    "unit/client/test_resources.py",
    "unit/durable/test_giving_up.py",
    "unit/durable/test_kills.py",
    "unit/dynamodb/test_create_table.py",
    "unit/guarded/test_contention.py",
    "unit/lambdas/test_reap_handler.py",
    "unit/store/test_queue.py",
    "unit/store/test_queue_faults.py",
    "unit/store/test_reap.py",
    "unit/store/test_reap_at_scale.py",
)
"""Folders and files without coverage: other tests measure the same lines, and tracing, which
doubles the time of a test, costs these most."""


class SuiteScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Hands out whole suites where tests share something dear, and single files elsewhere."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        suites = (suite for suite in WHOLE_SUITES if file.startswith(f"tests/{suite}/"))
        return next(suites, file)


def arrange(items: list[pytest.Item], tests: Path) -> None:
    """Sort the tests by WHOLE_SUITES, and switch coverage off for NOT_MEASURED."""

    def folder_of(item: pytest.Item) -> str:
        return item.path.relative_to(tests).parent.as_posix() + "/"

    def rank(item: pytest.Item) -> int:
        folder = folder_of(item)
        suites = enumerate(WHOLE_SUITES)
        # Not `len(items)`: a list that is being sorted looks empty.
        last = len(WHOLE_SUITES)
        return next((at for at, suite in suites if folder.startswith(f"{suite}/")), last)

    items.sort(key=rank)
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(NOT_MEASURED):
            item.add_marker("no_cover")
