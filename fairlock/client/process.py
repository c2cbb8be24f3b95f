"""What threads and locks of a process meet with: forks, and signal handlers."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Resettable(Protocol):
    """An object with threads, connections or mutexes, which a forked child must not use."""

    def _reset_after_fork(self) -> None:
        """Forgets threads, connections, and every mutex that a thread of the parent may hold."""
        ...


_resettable: Final[WeakSet[Resettable]] = WeakSet()


def reset_in_children(thing: Resettable) -> None:
    """Calls `_reset_after_fork` in every child that is forked while the object exists."""
    _resettable.add(thing)


def _reset_all() -> None:
    for thing in list(_resettable):
        thing._reset_after_fork()  # noqa: SLF001 - no call for users


if hasattr(os, "register_at_fork"):  # Windows cannot fork.
    os.register_at_fork(after_in_child=_reset_all)


def is_held_by_this_thread(mutex: object) -> bool:
    """Whether this very thread holds the mutex, so that a signal handler must not wait for it.

    Python runs signal handlers in the main thread, in the middle of what it does. A handler that
    waits for the mutex, or for a thread that needs the mutex, waits for itself.

    Args:
        mutex: a `threading.RLock`. Any other kind never counts as held.
    """
    is_owned = getattr(mutex, "_is_owned", None)  # `threading.Condition` asks in the same way.
    return is_owned is not None and bool(is_owned())
