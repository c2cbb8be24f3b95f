"""Calls a user's functions in the thread of the test; a real client has threads for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fairlock.client.callbacks import Callbacks
from fairlock.client.lock_events import LockEvent, LockEvents


class CallbacksInLine(Callbacks):
    """Calls callbacks at once, in the thread of the test; during a heartbeat right after it.

    Within a heartbeat the lock waits for its answer, and a callback could not use it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[str, Callable[[], None]]] = []
        self._are_held_back = False

    def call_soon(self, description: str, callback: Callable[[], None]) -> None:
        """Calls the callback; what it raises is logged."""
        self._waiting.append((description, callback))
        if not self._are_held_back:
            self._call_waiting()

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Calls the callbacks of a block at the end of it."""
        before, self._are_held_back = self._are_held_back, True
        try:
            yield
        finally:
            self._are_held_back = before
            if not before:
                self._call_waiting()

    def _call_waiting(self) -> None:
        while self._waiting:
            self._call(*self._waiting.pop(0))


class EventsInLine(LockEvents):
    """Calls the hook at once; what it raises is logged."""

    def _deliver(self, event: LockEvent) -> None:
        self._call(event)
