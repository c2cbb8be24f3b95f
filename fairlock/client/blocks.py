"""What both clients do without a request of their own: `hold` and `hold_all` make blocks.

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
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from fairlock.client.arguments import (
    ClientSettings,
    EnteredOneWay,
    LockOptions,
    NotThere,
    refuse,
    require_bool,
    require_max_wait,
)
from fairlock.client.base_lock import BaseLock
from fairlock.client.lock import Lock
from fairlock.client.services import ClientServices
from fairlock.clock import Seconds, in_seconds
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


_ENTERED_TWICE: Final = "must be entered once; call `hold` again for another block"


class BaseHold(EnteredOneWay):
    """A block that has not begun: no lock is held, and nothing was sent."""

    def __init__(self, name: object, *, statement: str) -> None:
        self._was_entered = False
        self._name = name
        self._statement = statement

    def _enter_once(self) -> None:
        if self._was_entered:
            refuse("hold", _ENTERED_TWICE, self)
        self._was_entered = True

    def __call__(self, *_arguments: object) -> NoReturn:
        """Refuses to decorate a function."""
        refuse("hold", "is no decorator: write `@locked(name, client=locks)` instead", self)

    def _advice(self) -> str:
        method = "hold_all" if isinstance(self._name, list) else "hold"
        return f"write `{self._statement} locks.{method}({self._name!r}) as lock:`"

    def __del__(self) -> None:
        """Points out a block that never began: the work after it had no lock.

        By a RuntimeWarning, as Python does for a coroutine without `await`, because it hides a
        ResourceWarning. Not by the log, whose mutex the garbage collector may find taken.
        """
        if not getattr(self, "_was_entered", True):
            message = f"lock {self._name!r} was never acquired: {self._advice()}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    if not TYPE_CHECKING:  # For type checkers it has no other attributes.

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it never returns
            """Tells who takes this for the lock itself what to write."""
            if not name.startswith("_") and hasattr(Lock, name):
                rule = (
                    f"must enter this block first: it is no lock yet; {self._advice()} and use "
                    f"`lock.{name}`"
                )
                raise NotThere(field="with", rule=rule, value=self, show_text=False)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)


_Within = TypeVar("_Within")


class SyncHold(BaseHold, Generic[_Within]):
    """One that `with` enters."""

    def __init__(self, name: object, block: AbstractContextManager[_Within]) -> None:
        super().__init__(name, statement="with")
        self._block = block

    def __enter__(self) -> _Within:
        """Acquires, as `LockClient.acquire` does; several locks one after the other."""
        self._enter_once()
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Releases; see `LockClient.hold`."""
        self._block.__exit__(kind, error, traceback)


class Hold(SyncHold[Lock]):
    """`with locks.hold("orders/7") as lock:` acquires, runs the body, releases."""


class HoldAll(SyncHold[tuple[Lock, ...]]):
    """`with locks.hold_all(["a", "b"]) as (a, b):` acquires all, runs the body, releases all."""


Callback = TypeVar("Callback")
Block = TypeVar("Block", bound=BaseHold)
BlockOfAll = TypeVar("BlockOfAll", bound=BaseHold)


class BaseClient(EnteredOneWay, ABC, Generic[Callback, Block, BlockOfAll]):
    """A client, of either kind: its connections and locks belong to one process."""

    _settings: ClientSettings
    _services: ClientServices
    _hold: Callable[[object, Any], Block]
    _hold_all: Callable[[object, Any], BlockOfAll]

    def __getstate__(self) -> NoReturn:
        """Refuses to be copied or pickled."""
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled: make one in each process"
        )

    def longest_wait(self, lease: Seconds | None = None) -> float:
        """Seconds that `acquire` waits by default for a lock with such a lease."""
        return self._settings.longest_wait(lease)

    def hold(
        self,
        name: str,
        *,
        lease: Seconds | None = None,
        max_wait: Seconds | None = None,
        limit: int = 1,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        on_lost: Callback | None = None,
        on_danger: Callback | None = None,
        reentrant: bool = False,
        shared: bool = False,
        max_hold: Seconds | None = None,
        only_newest: bool | int = False,
    ) -> Block:
        """`with locks.hold("orders/7") as lock:` acquires, runs the body, releases.

        With an `AsyncLockClient` write `async with`; callbacks may be coroutine functions then. The
        block that this returns can be entered once, and gets the `Lock`. What the body raises
        leaves the block as it is, with a note if the release failed too, or if the lock was lost.
        If the body succeeds but the lock was lost meanwhile, `LockLost` is raised: the body was not
        alone. If only the release fails, see `best_effort_release`.

        If a thread inside the block waits for the same lock, by `hold`, `acquire` or `@locked` of
        this client, it would wait for itself: the client raises `InvalidRequest` at once. With more
        permits, that applies once the thread holds `limit` of them itself. A call that does not
        wait (`max_wait=0`, `try_acquire`) is refused as usual. A lock that was released or lost
        does not count, nor does one from `acquire` outside of a `with`: another thread may release
        it.

        With `reentrant=True`, the block gets the same `Lock` again. It sends no request, and only
        the outermost block releases. `limit` must be that of the outer block; repeat its other
        options, or leave them out. `max_wait` has no effect.

        The other arguments and the errors are those of `acquire`.
        """
        options = LockOptions(
            *(name, lease, max_wait, limit, data, owner_name, on_lost, on_danger),
            *(shared, max_hold, only_newest),
        )
        require_bool("reentrant", reentrant)
        return self._hold(name, self._block(options, reentrant=reentrant))

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
    ) -> BlockOfAll:
        """`with locks.hold_all(["accounts/7", "accounts/9"]) as (seven, nine):` holds all or none.

        With an `AsyncLockClient` write `async with`.

        Guaranteed: callers that take several locks by this, or by a `LockGuard` with a list, never
        wait for each other in a circle, whatever the order of their lists: all take them by the
        bytes of their names. When the body begins, all are held. They are released in reverse, as
        by `hold`.

        Not guaranteed: that the first locks are free while the last one is waited for. And nothing
        about a caller that holds one of them by itself while it waits for another.

        There may be 1 to 20 names, none of them twice; the block gets the locks in their order.
        `max_wait` is for all of them together, and 0 tries each once. `max_hold` counts from the
        grant of each, and must be longer than `max_wait`. The other arguments are those of
        `acquire`, for each of the locks.

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
        plan: LocksInOrder[Any] = LocksInOrder(names, options, self._services)
        return self._hold_all(list(plan.names), self._block_of_all(plan))

    @abstractmethod
    def _block(self, options: LockOptions[Callback], *, reentrant: bool) -> Any:  # noqa: ANN401 - of either kind
        """The block of `hold`."""

    @abstractmethod
    def _block_of_all(self, plan: LocksInOrder[Any]) -> Any:  # noqa: ANN401 - same
        """The block of `hold_all`."""

    @abstractmethod
    def _require_open(self) -> None:
        """Raises `ClientUnusable` once the client is closed."""

    def _opened(self) -> ClientServices:
        self._require_open()
        return self._services
