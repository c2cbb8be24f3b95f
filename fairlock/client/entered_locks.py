"""The locks that a thread is inside of: it must not wait for them, and may enter them again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Final

from fairlock.client.arguments import LockOptions, refuse
from fairlock.clock import in_seconds
from fairlock.protocol.model import AcquireRequest
from fairlock.wire import rules

_UPGRADE: Final = ", and a shared lock cannot become exclusive; end that block first"
_SHARED_AGAIN: Final = (
    ", and would wait behind a writer that waits for it; go on under it with "
    "hold(…, shared=True, reentrant=True) or @locked(…, shared=True, reentrant=True)"
)


Entered = list[weakref.ref[Any]]
"""Locks of either kind whose blocks have begun: weak, so that a drop is noticed."""


class EnteredLocks:
    """The locks of one client by the thread that is inside their `with` blocks.

    Only blocks count: a `Lock` from `acquire` may be released by another thread. A thread is known
    by an object of its own, and not by its number, which the next thread may get.
    """

    def __init__(self) -> None:
        self._of_this_thread = threading.local()

    def mine(self) -> Entered:
        """The locks that the caller is inside of, to be changed."""
        locks: Entered = self._of_this_thread.__dict__.setdefault("locks", [])
        return locks

    def held(self, name: str) -> list[Any]:
        """The locks of this name that the caller is inside of, and holds, the innermost last."""
        locks = [entered() for entered in self.mine()]
        return [lock for lock in locks if lock and lock.name == name and lock.remaining]

    def require_that_others_can_release(self, request: AcquireRequest) -> None:
        """Refuses a wait that only the waiter itself could end.

        A reader needs one only: a writer that queues in between waits for it, and is waited for.
        """
        name, held = request.lock_name, self.held(request.lock_name)
        if any(lock.shared for lock in held):
            rule = (
                f"must not be {name!r} here: this {self._who()} is inside a `with` that shares it"
            )
            refuse("name", rule + (_SHARED_AGAIN if request.shared else _UPGRADE), name)
        limits = [request.limit, *(lock._options.limit for lock in held)]  # noqa: SLF001 - of our own
        if held and len(held) >= min(limits):
            rule = (
                f"must not be {name!r} here: this {self._who()} is inside a `with` that holds the "
                "lock, and would wait for itself; end that block first, or go on under it with "
                "hold(…, reentrant=True) or @locked(…, reentrant=True)"
            )
            refuse("name", rule, name)

    def reentered(self, options: LockOptions[Any]) -> Any:  # noqa: ANN401 - of either kind
        """The lock that the caller holds already and enters again; None if it holds none."""
        held = self.held(rules.plain_text("name", rules.LOCK_NAME, options.name))
        if not held:
            return None
        lock, outer = held[-1], held[-1]._options  # noqa: SLF001 - of our own
        if lock.shared and not options.shared:
            rule = "must be True here: the outer block shares the lock, and cannot become exclusive"
            refuse("shared", rule, options.shared)
        self._require_same("limit", options.limit, outer.limit)
        self._require_same("lease", in_seconds(options.lease), lock.lease)
        self._require_same("data", _plain(options.data), _plain(lock.data))
        self._require_same("owner_name", options.owner_name, lock.owner_name)
        self._require_same("max_hold", in_seconds(options.max_hold), in_seconds(outer.max_hold))
        version = None if options.only_newest is False else options.only_newest
        self._require_same("only_newest", version, outer.only_newest)
        self._require_same("on_lost", options.on_lost, outer.on_lost)
        self._require_same("on_danger", options.on_danger, outer.on_danger)
        return lock

    @staticmethod
    def _require_same(field: str, value: object, outer: object) -> None:
        # The version 1 is not True, nor is 0 False.
        is_other = isinstance(value, bool) != isinstance(outer, bool) or value != outer
        if value is not None and is_other:
            rule = "must be left out, or be that of the outer block, whose lock is entered again"
            refuse(field, rule, value)

    @staticmethod
    def _who() -> str:
        return "thread"


def _plain(data: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(data) if isinstance(data, Mapping) else data
