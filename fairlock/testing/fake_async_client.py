"""`FakeAsyncLockClient`: an `AsyncLockClient` without AWS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self, Unpack

from fairlock.aio import AsyncLockClient
from fairlock.aio.bridge import BridgedClock
from fairlock.client.arguments import ClientOptions
from fairlock.client.reporting import LockEvents, OnEvent
from fairlock.clock import Seconds
from fairlock.testing.fake_client import EventsInLine, FakeClient
from fairlock.testing.fake_table import FakeTable
from fairlock.testing.manual_clock import START_MS, VirtualTimeLoop, checked_seconds
from fairlock.wire import rules


class LoopClock(BridgedClock):
    """The time of the event loop that runs: real, or virtual in `run_in_virtual_time`."""

    def __init__(self) -> None:
        self._stalled_seconds = 0.0

    def stall(self, length: Seconds) -> None:
        """Lets time pass in which no task runs: so a test makes a holder lose its lock."""
        seconds = checked_seconds(length)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop):
            loop.block(seconds)
        else:
            self._stalled_seconds += seconds

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return START_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        """Seconds of the event loop."""
        return asyncio.get_running_loop().time() + self._stalled_seconds


class FakeAsyncLockClient(FakeClient, AsyncLockClient):
    """An `AsyncLockClient` for tests: its own code and protocol, over a table in memory.

    Guarantees, arguments and attributes are as of `FakeLockClient`. Time is that of the event loop:
    a wait takes as long as it says, or no time within `run_in_virtual_time`.
    """

    clock: LoopClock

    def __init__(
        self,
        *,
        table: FakeTable | None = None,
        clock: LoopClock | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self._share(table, clock, LoopClock)
        settings.setdefault("owner_name", "test")
        super().__init__("fake-locks", client=_Awaitable(self.table), clock=self.clock, **settings)

    @classmethod
    async def from_stack(
        cls, stack_name: str, *, session: object = None, **settings: Unpack[ClientOptions]
    ) -> Self:
        """A client over a table of its own; nothing is read."""
        del session
        rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
        return cls(**settings)

    @staticmethod
    def _new_events(on_event: OnEvent | None) -> LockEvents:
        return EventsInLine(on_event)


class _Awaitable:
    """The operations of a table as coroutine functions, as a client of aiobotocore has them."""

    def __init__(self, table: FakeTable) -> None:
        self._table = table
        self.exceptions = table.exceptions
        self.meta = table.meta

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._table, name)

        async def call(**request: Any) -> Any:  # noqa: ANN401 - as aiobotocore answers
            await asyncio.sleep(0)  # Others may run while a request is under way.
            return operation(**request)

        return call
