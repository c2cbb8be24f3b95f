"""Two drivers, so that one test says the same of `LockClient` and of `AsyncLockClient`.

A test is a coroutine function over a `World`. `done` waits for what the asyncio client returns, and
passes on what the client with threads has returned. With threads the whole test runs at once, and
time passes by a clock that is moved; with asyncio it runs in virtual time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial, wraps
from typing import Any

from fairlock import Lock, LockDescription, locked
from fairlock.aio.async_lock import AsyncHold, AsyncHoldAll, AsyncLock
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, run_in_virtual_time
from fairlock.testing.fake_async_client import LoopClock
from fairlock.testing.manual_clock import ManualClock
from tests.support import Operations, store_over
from tests.support.clocks import WrongClock
from tests.unit.client.doubles import Table

LEASE = 30
"""Renewed every 10 s, in danger 10 s before its end."""
OWN = LEASE * 0.98
"""For how long a holder relies on such a lease."""
Work = Callable[[Any, Any], Coroutine[Any, Any, Any]]
Coroutines = Callable[..., Coroutine[Any, Any, Any]]


class Told:
    """What the callbacks of locks were told: what, why, and seconds after this was made."""

    def __init__(self, world: World) -> None:
        self.what: list[str] = []
        self.reasons: list[str] = []
        self.after: list[float] = []
        self._world = world
        self._began = world.now()

    def callbacks(self) -> dict[str, Any]:
        """Arguments of `acquire`."""
        return {f"on_{what}": partial(self._note, what) for what in ("danger", "lost")}

    def _note(self, what: str, _lock: object, reason: str) -> None:
        self.what.append(what)
        self.reasons.append(reason)
        self.after.append(self._world.now() - self._began)


class World:
    """One table, its clients, and time: with `LockClient`.

    Attributes:
        caller: what uses a client: a thread or a task.
        clock: the true one, by which AWS dates its answers.
    """

    caller = "thread"

    def __init__(self, clock: Any = None) -> None:  # noqa: ANN401 - of either kind
        self.clock = clock or ManualClock()
        self.table = Table(self.clock)
        self.clients: list[Any] = []

    def client(self, name: str = "anna", **settings: Any) -> Any:  # noqa: ANN401 - of either kind
        """A client, as another process would have it."""
        return self.another(name, **{"lease": LEASE, **settings})

    def another(self, name: str = "other", /, **settings: Any) -> Any:  # noqa: ANN401 - same
        """The same with the lease of the product, 60 s."""
        client = self._make({"clock": self.clock, "owner_name": name, **settings})
        self.table.clock = self.clock
        self.clients.append(client)
        return client

    def with_clock(self, skew: float, **settings: Any) -> Any:  # noqa: ANN401 - of either kind
        """A client of a process whose own wall clock is so many seconds ahead."""
        return self.another(clock=WrongClock(self.clock, round(skew * 1000)), **settings)

    @cached_property
    def locks(self) -> Any:  # noqa: ANN401 - same
        """A client with the settings of the product."""
        return self.another("test")

    def store(self) -> Operations:
        """Others, who use the functions."""
        return store_over(self.table, self.clock)

    async def list(self, client: Any, *prefix: str) -> list[LockDescription]:  # noqa: ANN401 - of either kind
        found = client.list(*prefix)
        return list(found) if isinstance(found, Iterator) else [lock async for lock in found]

    def play(self, scene: Coroutine[Any, Any, None]) -> None:
        """Runs a test, and closes the clients that it has left open."""

        async def play() -> None:
            try:
                await scene
            finally:
                for client in self.clients:
                    await done(client.close())

        self.run(play())

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        at_once(scene)

    def now(self) -> float:
        """Seconds of the clock by which leases are counted."""
        return float(self.clock.monotonic())

    async def sleep(self, seconds: float) -> None:
        """Lets time pass, and what is due happen."""
        self.clock.advance(seconds)

    def stall(self, seconds: float) -> None:
        """Lets time pass in which nothing of this process runs."""
        self.clock.stall(seconds)

    def at(self, seconds: float, action: Callable[[], Any]) -> None:
        """Plans something for so many seconds from now: a call of either client, perhaps."""
        self.clock.at(seconds, lambda: at_once(action()))

    async def lead(self, work: Work, **options: Any) -> Any:  # noqa: ANN401 - as of the client
        return self.locks.lead("a", lambda *args: at_once(work(*args)), **options)

    async def told(self, stop: Any, seconds: float) -> None:  # noqa: ANN401 - a leader's event
        """Waits until a leader has to stop, for so long at most."""
        stop.wait(seconds)

    def locked(self, does: Coroutines, name: str, **options: Any) -> Callable[..., Any]:  # noqa: ANN401 - same
        @wraps(does)
        def work(*args: object, **named: object) -> Any:  # noqa: ANN401 - same
            return at_once(does(*args, **named))

        made: Callable[..., Any] = locked(name, client=self.locks, **options)(work)
        return made

    def _make(self, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - of either kind
        return FakeLockClient(table=self.table, **settings)


Threads = World


class Tasks(World):
    """The same with `AsyncLockClient`, in virtual time."""

    caller = "task"

    def __init__(self) -> None:
        super().__init__(LoopClock())
        self._planned: list[asyncio.Task[None]] = []

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        run_in_virtual_time(scene)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def at(self, seconds: float, action: Callable[[], Any]) -> None:
        async def act() -> None:
            await asyncio.sleep(seconds)
            await done(action())

        self._planned.append(asyncio.get_running_loop().create_task(act()))

    async def lead(self, work: Work, **options: Any) -> Any:  # noqa: ANN401 - same
        return await self.locks.lead("a", work, **options)

    async def told(self, stop: Any, seconds: float) -> None:  # noqa: ANN401 - same
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)

    def locked(self, does: Coroutines, name: str, **options: Any) -> Callable[..., Any]:  # noqa: ANN401 - same
        made: Callable[..., Any] = locked(name, client=self.locks, **options)(does)
        return made

    def _make(self, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - same
        return FakeAsyncLockClient(table=self.table, **settings)


WAYS = ("hold", "acquire", "locked")


async def nothing() -> None:
    """What a locked function does."""


async def enter(world: World, way: str, **options: Any) -> None:  # noqa: ANN401 - as of the client
    """Waits for the lock "a" in one of the ways, and has it until the end of the test."""
    if way == "locked":
        await done(world.locked(nothing, "a", **options)())
    elif way == "acquire":
        await done(world.locks.acquire("a", **options))
    else:
        await inside(world.locks.hold("a", **options)).__aenter__()


def at_once(value: Any) -> Any:  # noqa: ANN401 - what a method of either client returns
    """Runs it, if it is a coroutine, and it may wait for nothing."""
    if not inspect.iscoroutine(value):
        return value
    try:
        value.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a test of the client with threads waits for nothing")


async def done(value: Any) -> Any:  # noqa: ANN401 - what a method of either client returns
    """The value, waited for if the client is the one for asyncio."""
    # A `Lock` can be awaited as well: it says that this is a mistake.
    return value if isinstance(value, Lock) or not inspect.isawaitable(value) else await value


@asynccontextmanager
async def inside(block: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - a block of either client
    """The block of `hold`."""
    if isinstance(block, AsyncHold | AsyncHoldAll | AsyncLock):
        async with block as held:
            yield held
    else:
        with block as held:
            yield held
