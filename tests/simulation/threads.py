"""Threads of the simulated processes: what `threading` and `queue` offer, over tasks of the engine.

`LockClient` renews its locks in threads. The modules that make them find these stand-ins under the
names `threading` and `SimpleQueue`, while a simulation runs, so that their own code runs unchanged:
the scheduler of heartbeats, its pool of workers, and the mutex that keeps a heartbeat and a release
of one lock apart.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from greenlet import getcurrent

from fairlock.client import acquisition, base_lock, entered_locks, heartbeats, lease_handle, threads
from tests.simulation.engine import Task

_MODULES: Final = (acquisition, base_lock, entered_locks, heartbeats, lease_handle, threads)


class SimMutex:
    """A reentrant mutex, as `threading.RLock`."""

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: deque[tuple[Task, int]] = deque()

    def acquire(self) -> bool:
        me = getcurrent()
        while self._owner is not None and self._owner is not me:
            self._waiting.append((me, me.waits + 1))
            me.process.engine.wait()
        self._owner, self._depth = me, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            if self._waiting:
                task, waits = self._waiting.popleft()
                task.process.engine.wake(task, waits)

    def _is_owned(self) -> bool:
        return self._owner is getcurrent()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_raised: object) -> None:
        self.release()


class SimCondition:
    """A condition with a mutex, as `threading.Condition`; for one waiter, as heartbeats have it."""

    def __init__(self, mutex: SimMutex) -> None:
        self._mutex = mutex
        self._waiting: tuple[Task, int] | None = None

    def wait(self, seconds: float | None = None) -> None:
        me = getcurrent()
        self._mutex.release()
        self._waiting = me, me.waits + 1
        try:
            me.process.engine.wait(seconds)
        finally:
            self._waiting = None
            self._mutex.acquire()

    def notify(self) -> None:
        if self._waiting is not None:
            task, waits = self._waiting
            task.process.engine.wake(task, waits)


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
    return getattr(current, "thread", None) or _Foreign(current)


class _Foreign:
    """A thread that the simulation has started, as seen by `threading.current_thread`."""

    def __init__(self, task: Any) -> None:  # noqa: ANN401 - a task, or the engine's greenlet
        self._task = task

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Foreign) and other._task is self._task

    def __hash__(self) -> int:
        return hash(id(self._task))

    def is_alive(self) -> bool:
        return not self._task.dead


class SimSemaphore:
    """A semaphore that is never waited for."""

    def __init__(self, value: int) -> None:
        self._value = value

    def acquire(self, *, blocking: bool) -> bool:
        assert not blocking
        if self._value == 0:
            return False
        self._value -= 1
        return True

    def release(self) -> None:
        self._value += 1


class SimLocal:
    """What each thread has of its own, as `threading.local`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of whatever type it is
        try:
            return _locals_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        _locals_of(self)[name] = value


def _locals_of(local: SimLocal) -> dict[str, Any]:
    current = getcurrent()
    found: dict[SimLocal, dict[str, Any]] = current.__dict__.setdefault("locals", {})
    return found.setdefault(local, {})


class SimQueue:
    """A queue without a bound, as `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[object] = deque()
        self._waiting: deque[tuple[Task, int]] = deque()

    @classmethod
    def __class_getitem__(cls, _item: object) -> type[SimQueue]:
        return cls

    def put(self, item: object) -> None:
        self._items.append(item)
        if self._waiting:
            task, waits = self._waiting.popleft()
            task.process.engine.wake(task, waits)

    def get(self) -> object:
        me = getcurrent()
        while not self._items:
            self._waiting.append((me, me.waits + 1))
            me.process.engine.wait()
        return self._items.popleft()


_THREADING: Final = SimpleNamespace(
    **{
        **vars(threading),
        "RLock": SimMutex,
        "Lock": SimMutex,
        "Condition": SimCondition,
        "Thread": SimThread,
        "Semaphore": SimSemaphore,
        "local": SimLocal,
        "current_thread": _current_thread,
    }
)


@contextmanager
def simulated_threads() -> Iterator[None]:
    """While this is open, clients that are made have simulated threads."""
    with ExitStack() as stack:
        for module in _MODULES:
            stack.enter_context(patch.object(module, "threading", _THREADING))
        stack.enter_context(patch.object(threads, "SimpleQueue", SimQueue))
        yield
