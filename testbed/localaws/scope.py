"""Stretches of a workflow that can be ended from outside: an execution, a branch, an iteration.

The emulator runs each execution and each branch in a thread of its own. A thread cannot be
stopped, so every place where it waits asks its scope, and leaves by `Cancelled` once that is over.
"""

import contextvars
import threading
from collections.abc import Callable
from typing import Any

current: contextvars.ContextVar["Scope | None"] = contextvars.ContextVar("scope", default=None)


class Cancelled(BaseException):
    """Leaves a thread whose scope is over. Not an Exception: no workflow code may catch it."""


class Scope:
    """Over once `end()` was called on it or on a scope around it; then for ever."""

    def __init__(self, parent: "Scope | None" = None) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._to_wake: set[threading.Event] = set()
        self._children: list[Scope] = []
        if parent is not None:
            parent.adopt(self)

    @property
    def over(self) -> bool:
        """Whether nothing of this scope may go on."""
        return self._over

    def adopt(self, child: "Scope") -> None:
        """End `child` with this scope."""
        with self._lock:
            self._children.append(child)
            over = self._over
        if over:
            child.end()

    def end(self) -> None:
        """End this scope and all scopes inside it, and wake the threads that wait in them."""
        with self._lock:
            self._over = True
            to_wake, children = list(self._to_wake), list(self._children)
        for event in to_wake:
            event.set()
        for child in children:
            child.end()

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait for the event or the time; Cancelled as soon as the scope is over."""
        with self._lock:
            self._to_wake.add(event)
            over = self._over
        try:
            happened = not over and event.wait(seconds)
        finally:
            with self._lock:
                self._to_wake.discard(event)
        if self._over:
            raise Cancelled
        return happened


def check() -> None:
    """Cancelled if the current scope is over."""
    scope = current.get()
    if scope is not None and scope.over:
        raise Cancelled


def wait(event: threading.Event, seconds: float | None = None) -> bool:
    """Wait inside the current scope: whether the event happened within the time."""
    scope = current.get()
    return event.wait(seconds) if scope is None else scope.wait(event, seconds)


def sleep(seconds: float) -> None:
    """Sleep inside the current scope."""
    if seconds > 0:
        wait(threading.Event(), seconds)
    else:
        check()


def start(function: Callable[..., Any], *arguments: Any) -> "Call":
    """Run the call in a thread of its own, in this thread's context."""
    return Call(function, arguments)


class Call:
    """A call under way in its own thread. Cancelling its caller does not stop it, as on AWS."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._run, function, arguments), daemon=True
        ).start()

    def _run(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._result = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Any:
        """What the finished call returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result


def run(function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> Any:
    """Call inside the current scope; TimeoutError when it takes longer than `seconds`."""
    call = start(function, *arguments)
    if not wait(call.done, seconds):
        raise TimeoutError
    return call.result()
