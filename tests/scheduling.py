"""Which process runs what in `pytest -n`, and what comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

WHOLE_SUITES: Final = ("e2e/lifetimes", "e2e", "model", "unit/cdk")
"""Each is run by one process, because its tests share a deployment, searches or a synthesis.

The longest come first, so that the others fill the time beside them.
"""

NOT_MEASURED: Final = ("e2e", "model", "property", "behaviour")
"""Suites without coverage: they follow what other suites measure, and tracing costs them most."""


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
        return next((at for at, suite in suites if folder.startswith(f"{suite}/")), len(items))

    items.sort(key=rank)
    for item in items:
        if folder_of(item).startswith(tuple(f"{suite}/" for suite in NOT_MEASURED)):
            item.add_marker("no_cover")
