"""Two drivers, so that one test says the same of `LockClient` and of `AsyncLockClient`.

A test is a coroutine function over a `World`. `done` waits for what the asyncio client returns, and
passes on what the client with threads has returned. With threads the whole test runs at once, and
time passes by a clock that is moved; with asyncio it runs in virtual time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from fairlock.client.lock import Hold
from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, FakeTable, run_in_virtual_time
from fairlock.testing.manual_clock import VirtualTimeLoop

LEASE = 30
"""Renewed every 10 s, in danger 10 s before its end."""
OWN = LEASE * 0.98
"""For how long a holder relies on such a lease."""
_P = ParamSpec("_P")


class Table(FakeTable):
    """A table in memory; `defect` is what each request raises, without being done."""

    def __init__(self) -> None:
        super().__init__()
        self.defect: Exception | None = None

    def _send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if self.defect is not None:
            raise self.defect
        return super()._send(name, request)

    def state(self, lock_name: str) -> LockState:
        """The lock as it is, without a request."""
        return read_state(self._memory.state(lock_name))

    def forget(self) -> None:
        """Another program deletes all items."""
        self._memory.items.clear()


class World(ABC):
    """One table, its clients, and time."""

    def __init__(self) -> None:
        self.table = Table()
        self.clients: list[Any] = []

    def client(self, name: str = "anna", **settings: Any) -> Any:  # noqa: ANN401 - of either kind
        """A client, as another process would have it."""
        settings = {"owner_name": name, "lease": LEASE, **settings}
        first = self.clients[0] if self.clients else None
        client = self._make(first, settings)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        """Closes the clients that the test has left open."""
        for client in self.clients:
            await done(client.close())

    @abstractmethod
    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        """Runs a test."""

    @abstractmethod
    def now(self) -> float:
        """Seconds of the clock by which leases are counted."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Lets time pass, and what is due happen."""

    @abstractmethod
    def stall(self, seconds: float) -> None:
        """Lets time pass in which nothing of this process runs."""

    @abstractmethod
    def _make(self, first: Any, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - of either kind
        """A client with the clock of the first one."""


class Threads(World):
    """`LockClient`."""

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        try:
            scene.send(None)
        except StopIteration:
            return
        raise AssertionError("a test of the client with threads waits for nothing")

    def now(self) -> float:
        return float(self.clients[0].clock.monotonic())

    async def sleep(self, seconds: float) -> None:
        self.clients[0].clock.advance(seconds)

    def stall(self, seconds: float) -> None:
        self.clients[0].clock.stall(seconds)

    def _make(self, first: Any, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - same
        clock = first.clock if first else None
        return FakeLockClient(table=self.table, clock=clock, **settings)


class Tasks(World):
    """`AsyncLockClient`."""

    def run(self, scene: Coroutine[Any, Any, None]) -> None:
        run_in_virtual_time(scene)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def stall(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.block(seconds)

    def _make(self, first: Any, settings: dict[str, Any]) -> Any:  # noqa: ANN401 - same
        clock = first.clock if first else None
        return FakeAsyncLockClient(table=self.table, clock=clock, **settings)


async def done(value: Any) -> Any:  # noqa: ANN401 - what a method of either client returns
    """The value, waited for if the client is the one for asyncio."""
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def inside(block: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - a block of either client
    """The block of `hold`."""
    if isinstance(block, Hold):
        with block as held:
            yield held
    else:
        async with block as held:
            yield held


def of_both_clients(scene: Callable[_P, Coroutine[Any, Any, None]]) -> Callable[_P, None]:
    """Makes a test of a coroutine function, whose argument `world` is the fixture."""

    @functools.wraps(scene)
    def test(*args: _P.args, **kwargs: _P.kwargs) -> None:
        world: Any = kwargs["world"]

        async def run() -> None:
            try:
                await scene(*args, **kwargs)
            finally:
                await world.close()

        world.run(run())

    return test
