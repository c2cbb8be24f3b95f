"""`lead`: one of many processes works, and another one as soon as that one cannot.

acquire, however long it takes ─▶ work(lock, stop) ─┬─▶ ends by itself: release, and `lead` ends
   ▲                                                │
   └──────────── release ◀── ends in time ◀─────────┴── is asked to stop: a lease was not renewed

No thread can be stopped from outside, so the work has to look.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fairlock.client.arguments import LONGEST_WAIT_SECONDS, ClientSettings, LockOptions, refuse
from fairlock.client.base_lock import BaseLock
from fairlock.client.blocks import BaseClient, Hold, HoldAll
from fairlock.client.local_lease import LostEvent
from fairlock.client.lock import Callback, Lock, LockServices
from fairlock.client.reporting import logger
from fairlock.clock import Seconds
from fairlock.errors import LockLost, LockStoreUnavailable, LockWaitTimeout

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")
_Stop = TypeVar("_Stop", bound="threading.Event | asyncio.Event")

_WORK_GOES_ON: Final = "lock %r is lost, and its work goes on: another process may lead by now"


class Term(Generic[_Stop]):
    """One time of leading, from the grant to the end of the work.

    Attributes:
        stop: tells the work to stop.
        was_told: whether the work was told before it ended.
        has_returned: whether the work has returned: an error after that is one of the release.
    """

    def __init__(
        self, settings: ClientSettings, make_stop: Callable[[Callable[[], bool]], _Stop]
    ) -> None:
        self._timing = settings.timing
        self._lock: BaseLock | None = None
        self._has_ended = False
        self.stop = make_stop(self._is_in_danger)
        self.was_told = self.has_returned = False

    def options(
        self,
        name: str,
        lease: Seconds | None,
        data: Mapping[str, Any] | None,
        owner_name: str | None,
        max_hold: Seconds | None,
    ) -> LockOptions[Any]:
        """What to ask of the lock: a wait that outlasts every other leader, and to be told."""
        return LockOptions(
            *(name, lease, LONGEST_WAIT_SECONDS, 1, data, owner_name),
            *(self._on_lost, self._on_danger),
            max_hold=max_hold,
        )

    @contextmanager
    def working(self, lock: BaseLock) -> Iterator[None]:
        """The work runs in this block. The release comes next, which is no reason to stop."""
        self._lock = lock
        try:
            yield
            self.has_returned = True
        finally:
            self._has_ended, self.was_told = True, self.stop.is_set()

    def _on_danger(self, _lock: BaseLock, _reason: str) -> None:
        """Tells the work to stop while it has some time left."""
        self.stop.set()

    def _on_lost(self, lock: BaseLock, _reason: str) -> None:
        """Tells the work to stop, and warns of it."""
        self.stop.set()
        if not self._has_ended:
            logger.warning(_WORK_GOES_ON, lock.name)

    def goes_on_after(self, error: Exception) -> bool:
        """Whether an error ends this term only, and `lead` acquires again: a wait is bounded."""
        if self._lock is None:
            return isinstance(error, LockWaitTimeout | LockStoreUnavailable)
        return self.was_told and (self.has_returned or isinstance(error, LockLost))

    def _is_in_danger(self) -> bool:
        # By the clock as it is now, as `lost` is: the process may have been frozen.
        lock = self._lock
        if lock is None or lock.remaining > self._timing.safe(lock.lease):
            return False
        self.stop.set()  # For good, although the lease may be renewed after that.
        return True


def check_work(settings: ClientSettings, work: object, *, is_async: bool) -> None:
    """Raises `InvalidRequest` unless `lead` can call this work, and the client sends heartbeats."""
    if not callable(work):
        refuse("work", "must be a function that takes the lock and the stop event", work)
    call = getattr(work, "__call__", None)  # noqa: B004 - of an object that is called like a function
    if (inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(call)) is not is_async:
        kinds = (
            "a function; AsyncLockClient.lead takes a coroutine function",
            "a coroutine function; LockClient.lead takes a function",
        )
        refuse("work", f"must be {kinds[is_async]}", work)
    try:
        inspect.signature(work).bind(None, None)
    except TypeError:
        refuse("work", "must take two arguments: the lock, and the event that says stop", work)
    except ValueError:
        pass  # A built-in function that tells no signature.
    if settings.timing.heartbeat_every == math.inf:
        rule = "must be finite for `lead`: a leader whose lease is not renewed is asked to stop"
        refuse("heartbeat_every", rule, math.inf)


class Leading(BaseClient[Callback, Hold, HoldAll]):
    """The part of `LockClient` that elects a leader."""

    _services: LockServices
    _hold, _hold_all = Hold, HoldAll

    def lead(
        self,
        name: str,
        work: Callable[[Lock, threading.Event], _T],
        *,
        lease: Seconds | None = None,
        data: Mapping[str, Any] | None = None,
        owner_name: str | None = None,
        max_hold: Seconds | None = None,
    ) -> _T:
        """Calls the work in one process of all that call this; in another one when that one fails.

            def work(lock, stop):
                while not stop.wait(10):
                    export(fencing_token=lock.fencing_token)

            locks.lead("exporter", work)

        The others wait in the queue of the lock, as long as it takes. `describe` tells who leads.

        If the lease cannot be renewed, or the lock is taken away, the event is set. Then the work
        should return within `safe_period` (a third of the lease), before another process may lead.
        After it has returned, this releases the lock, waits in the queue again, and calls the work
        again with another lock and another event. Work that goes on after its lease is over is
        logged as a warning: nothing can stop a thread.

        Work that ends by itself ends the leading: the lock is released, and what the work has
        returned, or raised, leaves this call, but for a `LockLost` after it was asked to stop. To
        end a leader, raise SystemExit in a handler of SIGTERM, or `close` the client from another
        thread.

        Args:
            name: of the lock, as of `acquire`.
            work: called in this thread with the lock and a `threading.Event`.
            lease: as of `acquire`; a leader that crashed is replaced its lease + 5 s after its last
                renewal.
            data: as of `acquire`; its address for instance, for all who look for the leader.
            owner_name: as of `acquire`.
            max_hold: longest seconds to lead at a time. The work is told `safe_period` before that,
                and the oldest of those that wait leads next.

        Returns:
            What the work has returned that was not told to stop.

        Raises:
            LockLost: the work has returned by itself, but was not alone.
            LockStoreUnavailable: the work has returned by itself, and the release failed, with
                `best_effort_release=False`.
            ClientUnusable: the client was closed.
            InvalidRequest: an argument breaks its rule, or the client sends no heartbeats; nothing
                was written.
            LockStoreMisconfigured, LockItemMalformed: as of `acquire`.
        """
        check_work(self._settings, work, is_async=False)
        while True:
            term = Term(self._settings, partial(LostEvent, clock=self._settings.clock))
            options = term.options(name, lease, data, owner_name, max_hold)
            try:
                with self._block(options, reentrant=False) as lock:
                    with term.working(lock):
                        result = work(lock, term.stop)
                    if not term.was_told:
                        return result
            except (LockLost, LockWaitTimeout, LockStoreUnavailable) as error:
                if not term.goes_on_after(error):
                    raise
