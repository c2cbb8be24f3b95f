"""Several locks at once: all or none, in one order, within one wait.

    hold_all(["ben", "anna"])     anna ──▶ ben ──▶ the body ──▶ ben, anna
                                    held     │
                                             └─ not in time, or an error: anna is released

All callers take the same locks in the same order, that of the bytes of their names, so no two of
them wait for each other. The order of the list does not matter, but for the locks that it returns.

A lock that is taken early is held, and renewed, while the next one is waited for. It may be lost
meanwhile, so all are looked at once more before the body begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from fairlock.client.arguments import LockOptions, refuse, require_bool, require_max_wait
from fairlock.client.base_lock import BaseLock
from fairlock.client.settings import ClientServices
from fairlock.clock import in_seconds
from fairlock.errors import LockWaitTimeout
from fairlock.protocol.model import AcquireRequest
from fairlock.wire import rules

_Lock = TypeVar("_Lock", bound=BaseLock)


class LocksInOrder(Generic[_Lock]):
    """Several locks: their names, the wait for all of them, and those that are held by now."""

    def __init__(
        self, names: Sequence[str], options: LockOptions[Any], services: ClientServices
    ) -> None:
        """Checks all names before the first lock is asked for."""
        rules.require("names", rules.LOCK_NAMES, names)
        self.names = tuple(rules.plain_text("names", rules.LOCK_NAME, name) for name in names)
        rules.require_different("names", self.names)
        settings, lease, shared = services.settings, options.lease, options.shared
        default = settings.longest_wait(lease)
        self._longest = default if options.max_wait is None else in_seconds(options.max_wait)
        require_max_wait(self._longest)
        if options.max_hold is not None:
            hold, length = in_seconds(options.max_hold), settings.lease if lease is None else lease
            settings.timing.require_hold(hold, in_seconds(length))
            if hold <= self._longest:
                rule = (
                    f"must be longer than max_wait ({self._longest:g} s): the first lock is held "
                    "while the next is waited for; give a shorter max_wait as well"
                )
                refuse("max_hold", rule, hold)
        require_bool("shared", shared)
        limit = rules.limit_of(options.limit, shared=shared)
        if self._longest:
            for name in self.names:
                request = AcquireRequest(lock_name=name, owner_id="", limit=limit, shared=shared)
                services.entered.require_that_others_can_release(request)
        self._options = options
        self._monotonic = settings.clock.monotonic
        self._since = -math.inf
        self.held: dict[str, _Lock] = {}

    @property
    def in_order(self) -> list[str]:
        """The names in the order in which the locks are taken."""
        return rules.in_lock_order(self.names)

    def options_of(self, name: str) -> LockOptions[Any]:
        """How the next lock is asked for: within the rest of the wait; 0 tries it once."""
        rest = max(0.0, self._longest - (self._monotonic() - self._since))
        return replace(self._options, name=name, max_wait=rest)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """All are asked for in this block. An error of one notes what became of the others."""
        self._since = self._monotonic()
        try:
            yield
        except LockWaitTimeout as error:
            given_back = f"given back: {', '.join(map(repr, self.held))}; " if self.held else ""
            error.add_note(
                f"hold_all waited {self._monotonic() - self._since:.1f} of {self._longest:g} s "
                f"for {len(self.names)} locks; {given_back}none of them is held"
            )
            raise

    def all_held(self) -> tuple[_Lock, ...]:
        """The locks in the order of their names in the call, all of them held at this moment."""
        for lock in self.held.values():
            lock.check()
        return tuple(self.held[name] for name in self.names)
