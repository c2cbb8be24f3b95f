"""The real code with one protection taken away, and the invariant that must then be broken."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tests.support.weakened import Patch

if TYPE_CHECKING:
    from tests.model.searches import Given


class Mutant:
    """A weaker protocol, the search that shows it, and the invariant that is then broken."""

    def __init__(self, breaks: StrEnum, search: Given, *patches: Patch) -> None:
        self.breaks, self.search, self.patches = breaks, search, patches

    @property
    def narrow_search(self) -> Given:
        """The search for this invariant alone."""
        return replace(self.search, invariants=frozenset({self.breaks}))
