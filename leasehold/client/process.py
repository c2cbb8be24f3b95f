"""After a fork: the child has the parent's objects, but not its threads, and not its locks."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Resettable(Protocol):
    """Something that has to begin anew in a forked child."""

    def reset_after_fork(self) -> None:
        """Forgets threads, connections and everything that a thread of the parent may have held."""
        ...


_all: Final[WeakSet[Resettable]] = WeakSet()


def reset_in_children(thing: Resettable) -> None:
    """Calls `reset_after_fork` in every child that is forked while the thing exists."""
    _all.add(thing)


def _reset_after_fork() -> None:
    for thing in list(_all):
        thing.reset_after_fork()


if hasattr(os, "register_at_fork"):  # Windows cannot fork.
    os.register_at_fork(after_in_child=_reset_after_fork)
