"""What a client tells of its locks: events for its user's hook, and lines of the log `fairlock`.

A `LockEvent` says what became of a lock that the client asked for. Events of the store are logged.
The logger never raises: a log that is broken must not cost a lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from queue import SimpleQueue
from typing import Any, Final

from fairlock.store.context import (
    CeilingChanged,
    Event,
    Evicted,
    Extended,
    HandedOver,
    LivenessUnknown,
    MixedLimits,
    PushUnknown,
    ReleasedByForce,
    WaitersSuperseded,
)
from fairlock.text import label_of, printable


class FailsafeLogger(logging.LoggerAdapter[logging.Logger]):
    """Drops what a handler raises: a log daemon that is gone must not end the heartbeats."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:  # noqa: ANN401 - as of the base
        """Writes a message, if that is possible."""
        options.setdefault("stacklevel", 2)
        with suppress(Exception):
            super().log(level, msg, *args, **options)


logger: Final = FailsafeLogger(logging.getLogger("fairlock"))
"""The logger of every module of the clients."""


def log_event(event: Event) -> None:
    """Logs what a request did besides its answer. The hook of users is `LockEvents`."""
    name = event.lock_name
    match event:
        case Evicted(holders=number):
            evicted = "a holder" if number == 1 else f"{number} holders"
            logger.warning("lock %r: evicted %s whose lease was over", name, evicted)
        case ReleasedByForce(requested_by=who, reason=why, owner_name=holder, fencing_token=token):
            logger.warning(
                "lock %r: released by force by %s: %s; it was held by %s, fencing token %d",
                *(name, printable(who), printable(why), label_of(holder), token),
            )
        case CeilingChanged(ceiling=limit, requested_by=who, reason=why):
            what = {None: "resumed", 0: "paused"}.get(limit, f"limited to {limit}")
            logger.warning("lock %r: %s by %s: %s", name, what, printable(who), printable(why))
        case MixedLimits(limit=limit, holders_limits=limits):
            logger.warning(
                "lock %r: asked for with limit %d, and its holders name %s; no more may hold than "
                "the lowest: give all callers the same limit",
                *(name, limit, ", ".join(map(str, limits))),
            )
        case Extended():
            logger.info("lock %r: lease extended, its workflow still runs", name)
        case LivenessUnknown():
            logger.warning("lock %r: no answer whether its holder's workflow runs", name)
        case PushUnknown():
            logger.warning(
                "lock %r: handed to a workflow that could not be woken (is states:SendTaskSuccess "
                "allowed, or for durable functions lambda:SendDurableExecutionCallbackSuccess?); "
                "the workflow finds out by its fallback poll",
                name,
            )
        case WaitersSuperseded(newest=newest, waiters=number):
            text = "lock %r: version %d was granted, %d older waiters are superseded"
            logger.info(text, name, newest, number)
        case HandedOver(fencing_token=token):
            logger.debug("lock %r: handed over, fencing token %d", name, token)


_MOST_WAITING: Final = 10_000
"""Events that a slow hook has not been called with yet; further ones are dropped."""
_CLOSE_SECONDS: Final = 2.0
_THREAD_NAME: Final = "fairlock-events"


class LockEventKind(StrEnum):
    """What happened, in words that may be the names of metrics."""

    GRANTED = "Granted"
    """The lock was acquired."""
    REFUSED = "Refused"
    """Others held it, and the caller did not wait."""
    TIMED_OUT = "TimedOut"
    """Others held it for as long as the caller waited."""
    SUPERSEDED = "Superseded"
    """A newer version was granted the lock; the caller asked for the newest only."""
    FAILED = "Failed"
    """An acquisition ended with an error: it is unknown whether it was granted, or impossible."""
    IN_DANGER = "InDanger"
    """A lease is near its end, because its heartbeats are late."""
    LOST = "Lost"
    """The lease of a holder is over, or another owner has the place."""
    RELEASED = "Released"
    """The holder released the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEvent:
    """One event of one acquisition. Nothing in it proves ownership.

    Attributes:
        kind: what happened.
        lock_name: the lock. There are too many of them for a dimension of a metric: log it.
        owner_name: label of the owner. There are too many of them, too: log it.
        fencing_token: of the grant; None if there was none.
        waited_seconds: from the call to the grant or to the end of the wait; None in other events.
        held_seconds: from the grant to the release or the loss; None in other events.
        reason: of a failure the name of the error, of a danger or a loss a text; else empty.
    """

    kind: LockEventKind
    lock_name: str
    owner_name: str
    fencing_token: int | None = None
    waited_seconds: float | None = None
    held_seconds: float | None = None
    reason: str = ""


OnEvent = Callable[[LockEvent], object]
"""Called with each event, in a thread of its own; what it raises is logged."""


class LockEvents:
    """Calls a user's hook with events, in order, and never waits for it.

    The thread starts with the first event and does not keep the process alive. Events are dropped,
    and that is logged, if the hook is too slow or no thread can be started.
    """

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        # No other queue can be used by a signal handler in the middle of a call of its own thread.
        self._waiting: SimpleQueue[LockEvent | threading.Event] = SimpleQueue()
        self._may_start = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropping = False

    def report(self, kind: LockEventKind, **fields: Any) -> None:  # noqa: ANN401 - see `LockEvent`
        """Hands an event to the hook; arguments as of `LockEvent`."""
        if self._on_event is not None:
            self._deliver(LockEvent(kind=kind, **fields))

    @property
    def has_thread(self) -> bool:
        """Whether there is a thread to be closed."""
        return self._thread is not None

    def close(self) -> None:
        """Waits until the hook was called with all events, at most 2 s; ends the thread."""
        thread = self._thread
        if thread is None:
            return
        done = threading.Event()
        self._waiting.put(done)
        if thread is not threading.current_thread() and not done.wait(_CLOSE_SECONDS):
            logger.warning("on_event is still busy: the client does not wait for it any longer")

    def _deliver(self, event: LockEvent) -> None:
        if self._waiting.qsize() >= _MOST_WAITING:
            if not self._dropping:
                logger.warning("on_event is too slow: events are dropped")
            self._dropping = True
            return
        self._dropping = False
        self._waiting.put(event)
        self._start_once()

    def _start_once(self) -> None:
        is_first, thread = False, None
        try:
            is_first = self._may_start.acquire(blocking=False)
            if is_first:
                thread = threading.Thread(target=self._run, name=_THREAD_NAME, daemon=True)
                self._thread = thread
                thread.start()
        except BaseException as error:
            # Else an interrupt came when there was a thread already.
            if is_first and (thread is None or thread.ident is None):
                self._thread = None
                self._may_start.release()
            if not isinstance(error, RuntimeError):
                raise
            logger.warning("no thread for on_event, it is called later: %s", error)

    def _run(self) -> None:
        while isinstance(event := self._waiting.get(), LockEvent):
            self._call(event)
        self._thread = None
        self._may_start.release()
        if not self._waiting.empty():  # Reported at the same time, or the client is closed twice.
            self._start_once()
        event.set()

    def _call(self, event: LockEvent) -> None:
        try:
            if self._on_event is not None:
                self._on_event(event)
        except BaseException:  # SystemExit too: the thread is still needed.
            logger.exception("on_event failed")
