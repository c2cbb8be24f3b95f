"""The real code with one protection taken away, and the invariant that must then be broken."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

from tests.support.weakened import Patch


class Mutant:
    """A weaker protocol, the search that shows it, and the invariant that is then broken."""

    def __init__(self, breaks: StrEnum, search: Any, *patches: Patch) -> None:  # noqa: ANN401 - of any of the three models
        self.breaks, self.search, self.patches = breaks, search, patches

    @property
    def narrow_search(self) -> Any:  # noqa: ANN401 - same
        """The search for this invariant alone."""
        return replace(self.search, invariants=frozenset({self.breaks}))
