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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from fairlock.client.arguments import LockOptions, refuse, require_max_wait
from fairlock.client.lock import Callback, HoldsLocks, Lock, SyncHold
from fairlock.client.settings import ClientServices
from fairlock.clock import Seconds, in_seconds
from fairlock.errors import LockWaitTimeout
from fairlock.protocol.model import AcquireRequest
from fairlock.wire import rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LocksInOrder:
    """The names of several locks, checked, and the wait for all of them."""

    names: tuple[str, ...]
    longest: float

    @classmethod
    def of(cls, names: Sequence[str], options: LockOptions[Any], services: ClientServices) -> Self:
        """Checks all names before the first lock is asked for."""
        rules.require("names", rules.LOCK_NAMES, names)
        plain = tuple(rules.plain_text("names", rules.LOCK_NAME, name) for name in names)
        rules.require_different("names", plain)
        settings, lease, shared = services.settings, options.lease, options.shared
        default = settings.longest_wait(lease)
        longest = default if options.max_wait is None else in_seconds(options.max_wait)
        require_max_wait(longest)
        if options.max_hold is not None:
            hold, length = in_seconds(options.max_hold), settings.lease if lease is None else lease
            settings.timing.require_hold(hold, in_seconds(length))
            if hold <= longest:
                rule = (
                    f"must be longer than max_wait ({longest:g} s): the first lock is held while "
                    "the next is waited for; give a shorter max_wait as well"
                )
                refuse("max_hold", rule, hold)
        if longest:
            limit = rules.limit_of(options.limit, shared=shared)
            for name in plain:
                request = AcquireRequest(lock_name=name, owner_id="", limit=limit, shared=shared)
                services.entered.require_that_others_can_release(request)
        return cls(names=plain, longest=longest)

    @property
    def in_order(self) -> list[str]:
        """The names in the order in which the locks are taken."""
        return rules.in_lock_order(self.names)

    def rest(self, *, since: float, now: float) -> float:
        """Seconds that are left to wait; 0 lets the next lock be tried once."""
        return max(0.0, self.longest - (now - since))

    def explain(self, error: LockWaitTimeout, held: Sequence[str], *, waited: float) -> None:
        """Notes on the error of one lock what became of the others."""
        given_back = f"given back: {', '.join(map(repr, held))}; " if held else ""
        error.add_note(
            f"hold_all waited {waited:.1f} of {self.longest:g} s for {len(self.names)} locks; "
            f"{given_back}none of them is held"
        )


class HoldAll(SyncHold[tuple[Lock, ...]]):
    """`with locks.hold_all(["a", "b"]) as (a, b):` acquires all, runs the body, releases all."""


class SeveralLocks(HoldsLocks):
    """The part of `LockClient` that holds several locks at once."""

    def hold_all(
        self,
        names: Sequence[str],
        *,
        lease: Seconds | None = None,
        max_wait: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
        shared: bool = False,
        max_hold: Seconds | None = None,
    ) -> HoldAll:
        """`with locks.hold_all(["accounts/7", "accounts/9"]) as (seven, nine):` holds all or none.

        Guaranteed: callers that take several locks by this, or by a `LockGuard` with a list, never
        wait for each other in a circle, whatever the order of their lists: all take them by the
        bytes of their names. When the body begins, all are held. They are released in reverse, as
        by `hold`.

        Not guaranteed: that the first locks are free while the last one is waited for. And nothing
        about a caller that holds one of them by itself while it waits for another.

        Args:
            names: 1 to 20, none of them twice. The block gets the locks in this order.
            lease: of each lock, as of `acquire`; so all further options.
            max_wait: longest seconds for all of them together. 0 tries each once.
            limit: of each lock.
            data: of each lock.
            owner_name: of each lock.
            on_lost: called with the lock that is lost.
            on_danger: called with the lock that is in danger.
            shared: whether each lock is shared.
            max_hold: of each lock, from its own grant; longer than `max_wait`.

        Raises:
            LockWaitTimeout: one of them was not handed over in time. None is held.
            LockLost: one was lost while the next was waited for; the body has not begun.
            InvalidRequest: an argument breaks its rule; nothing was written.

        All other errors as of `hold`.
        """
        options = LockOptions(
            *("", lease, max_wait, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold),
        )
        plan = LocksInOrder.of(names, options, self._services)
        return HoldAll(list(plan.names), self._block_of_all(plan, options))

    @contextmanager
    def _block_of_all(
        self, plan: LocksInOrder, options: LockOptions[Callback]
    ) -> Iterator[tuple[Lock, ...]]:
        monotonic = self._settings.clock.monotonic
        since, held = monotonic(), dict[str, Lock]()
        with ExitStack() as stack:
            try:
                for name in plan.in_order:
                    rest = plan.rest(since=since, now=monotonic())
                    one = replace(options, name=name, max_wait=rest)
                    held[name] = stack.enter_context(self._block(one, reentrant=False))
            except LockWaitTimeout as error:
                plan.explain(error, [*held], waited=monotonic() - since)
                raise
            for lock in held.values():
                lock.check()
            yield tuple(held[name] for name in plan.names)
