"""Threads of the simulated processes: whatever waits in `threading` or `queue`, over engine tasks.

While a simulation runs, the modules of `LockClient` that make threads find these under the names
`threading` and `SimpleQueue`, so that their own code runs unchanged.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from greenlet import getcurrent

from fairlock.client import acquisition, base_lock, entered_locks, heartbeats, lease_handle, threads
from tests.simulation.engine import Sleepers, Task
from tests.support.weakened import Patch, patched

_MODULES: Final = (acquisition, base_lock, entered_locks, heartbeats, lease_handle, threads)


class SimMutex:
    """A reentrant mutex, as `threading.RLock`."""

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._sleepers = Sleepers()

    def acquire(self) -> bool:
        while self._owner not in {None, getcurrent()}:
            self._sleepers.wait()
        self._owner, self._depth = getcurrent(), self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._sleepers.wake()

    def _is_owned(self) -> bool:
        return self._owner is getcurrent()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_raised: object) -> None:
        self.release()


class SimCondition:
    """A condition with a mutex, as `threading.Condition`."""

    def __init__(self, mutex: SimMutex) -> None:
        self._mutex = mutex
        self._sleepers = Sleepers()

    def wait(self, seconds: float | None = None) -> None:
        self._mutex.release()
        try:
            self._sleepers.wait(seconds)
        finally:
            self._mutex.acquire()

    def notify(self) -> None:
        self._sleepers.wake()


class SimThread:
    """A thread of the process that makes it."""

    ident = 1

    def __init__(
        self,
        *,
        target: Callable[..., object],
        name: str,
        daemon: bool = True,
        args: tuple[object, ...] = (),
    ) -> None:
        self._run = lambda: target(*args)
        self.name, self.daemon = name, daemon
        self._task: Task | None = None

    def start(self) -> None:
        self._task = getcurrent().process.start(self._run)
        self._task.thread = self

    def is_alive(self) -> bool:
        return self._task is None or not self._task.dead

    def join(self) -> None:
        engine = getcurrent().process.engine
        while self.is_alive():
            engine.wait(0.01)


def _current_thread() -> object:
    """The thread that runs: one that was made here, or the task itself."""
    current = getcurrent()
    return getattr(current, "thread", current)


class SimLocal:
    """What each thread has of its own, as `threading.local`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of whatever type it is
        try:
            return self._mine()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._mine()[name] = value

    def _mine(self) -> dict[str, Any]:
        found: dict[SimLocal, dict[str, Any]] = getcurrent().__dict__.setdefault("locals", {})
        return found.setdefault(self, {})


class SimQueue(deque[Any]):
    """A queue without a bound, as `queue.SimpleQueue`."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers = Sleepers()

    def put(self, item: object) -> None:
        self.append(item)
        self._sleepers.wake()

    def get(self) -> object:
        while not self:
            self._sleepers.wait()
        return self.popleft()


_THREADING: Final = SimpleNamespace(
    **{
        **vars(threading),
        "RLock": SimMutex,
        "Lock": SimMutex,
        "Condition": SimCondition,
        "Thread": SimThread,
        "local": SimLocal,
        "current_thread": _current_thread,
    }
)


@contextmanager
def simulated_threads() -> Iterator[None]:
    """While this is open, clients that are made have simulated threads."""
    found: list[Patch] = [(module, "threading", _THREADING) for module in _MODULES]
    with patched([*found, (threads, "SimpleQueue", SimQueue)]):
        yield
