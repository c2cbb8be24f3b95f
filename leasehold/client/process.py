"""After a fork: the child has the parent's objects, but not its threads, and not its locks."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """Something that has to begin anew in a forked child."""

    def begin_anew(self) -> None:
        """Forgets threads, connections and everything that a thread of the parent may have held."""
        ...


_all: Final[WeakSet[Forked]] = WeakSet()


def begin_anew_in_children(thing: Forked) -> None:
    """Calls `begin_anew` in every child that is forked while the thing exists."""
    _all.add(thing)


def _begin_anew() -> None:
    for thing in list(_all):
        thing.begin_anew()


if hasattr(os, "register_at_fork"):  # Windows cannot fork.
    os.register_at_fork(after_in_child=_begin_anew)
