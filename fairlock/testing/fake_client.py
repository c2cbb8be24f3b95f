"""`FakeLockClient`: a `LockClient` without AWS and without threads."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Self, Unpack

from fairlock.client.arguments import ClientOptions, refuse
from fairlock.client.heartbeats import Heartbeats, HeartbeatSchedule, Releasable, ScheduledHeartbeat
from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.lock import LockServices
from fairlock.client.lock_client import LockClient
from fairlock.client.reporting import LockEvent, LockEvents
from fairlock.client.threads import Callbacks
from fairlock.decorator.default_clients import default_clients_from, settings_for
from fairlock.testing.fake_table import FakeTable
from fairlock.testing.manual_clock import ManualClock
from fairlock.wire import rules


class CallbacksInLine(Callbacks):
    """Calls callbacks in the thread of the test, at once or after the heartbeat that runs."""

    def __init__(self) -> None:
        super().__init__()
        self._in_line: list[tuple[str, Callable[[], None]]] = []
        self._are_held_back = False

    def call_soon(self, description: str, callback: Callable[[], None]) -> None:
        """Calls the callback; what it raises is logged."""
        self._in_line.append((description, callback))
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
        while self._in_line:
            self._call(*self._in_line.pop(0))


class EventsInLine(LockEvents):
    """Calls the hook at once; what it raises is logged."""

    def _deliver(self, event: LockEvent) -> None:
        self._call(event)


def no_jitter() -> float:
    """Replaces `random.random`, so that a test happens in the same way each time."""
    return 0.5


class ManualHeartbeats(Heartbeats):
    """Renews locks as the clock is moved; callbacks are held back during a heartbeat."""

    def __init__(
        self, clock: ManualClock, *, most_at_once: int, callbacks: CallbacksInLine
    ) -> None:
        super().__init__(clock, most_at_once=most_at_once)
        self._schedule = HeartbeatSchedule(most_at_once=most_at_once, random=no_jitter)
        self._callbacks = callbacks
        clock.add(self)

    def next_at(self) -> float:
        """See `Timed`."""
        return math.inf if self._closed else self._schedule.next_at()

    def do_due(self) -> None:
        """See `Timed`."""
        if self._closed:
            return
        for scheduled in self._schedule.due(self._clock.monotonic()):
            self._begin(scheduled)

    def release_all(self, handles: Sequence[Releasable]) -> None:
        """One after the other, without threads."""
        for handle in handles:
            if isinstance(handle, LeaseHandle):
                self.remove(handle)
            handle.release_at_close()

    def _start(self) -> None:
        """No thread."""

    def _begin(self, scheduled: ScheduledHeartbeat) -> None:
        with self._callbacks.held_back():
            self._send(scheduled)


class FakeClient:
    """What `FakeLockClient` and `FakeAsyncLockClient` have in common."""

    def _share(self, table: FakeTable | None, clock: Any, kind: type) -> None:  # noqa: ANN401 - of that kind
        """Takes the table and the clock of another client, or makes them."""
        self.table = FakeTable() if table is None else table
        self.clock: Any = kind() if clock is None else clock
        for field, value, made in (("table", table, FakeTable), ("clock", clock, kind)):
            if value is not None and not isinstance(value, made):
                refuse(field, f"must be the {field} of another client, or left out", value)
        self.table.clock = self.clock  # The answers of the table tell that time.

    def another(self, owner_name: str = "other", /, **settings: Unpack[ClientOptions]) -> Self:
        """A client of the same table and clock, as another process would have it."""
        settings["owner_name"] = owner_name
        kind: Callable[..., Self] = type(self)
        return kind(table=self.table, clock=self.clock, **settings)


class FakeLockClient(FakeClient, LockClient):
    """A `LockClient` for tests: its own code and protocol, over a table in memory.

    Guaranteed: what it answers, raises and reports is what a `LockClient` would, because it is one,
    down to the number of requests. Nothing sleeps, no thread is started, nothing leaves the
    process. Callbacks are called in the thread of the test.

    Not guaranteed: the writes of `Lock.transact_write` to other tables (`NotImplementedError`), and
    what several threads do at once. docs/testing.md says what to use for these.

    Args:
        table: the lock table; None makes one. Clients exclude each other if they share it.
        clock: the present, to be moved; None makes one. Clients of one table share one clock.
        settings: as of `LockClient`.

    Attributes:
        table: the lock table: counts requests, and can fail.
        clock: the clock, to be moved.
    """

    clock: ManualClock

    def __init__(
        self,
        *,
        table: FakeTable | None = None,
        clock: ManualClock | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self._share(table, clock, ManualClock)
        settings.setdefault("owner_name", "test")
        super().__init__("fake-locks", client=self.table, clock=self.clock, **settings)

    @classmethod
    def from_stack(
        cls, stack_name: str, *, session: object = None, **settings: Unpack[ClientOptions]
    ) -> Self:
        """A client over a table of its own; nothing is read."""
        del session
        rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
        return cls(**settings)

    def _new_services(self) -> LockServices:
        services = super()._new_services()
        callbacks = CallbacksInLine()
        heartbeats = ManualHeartbeats(
            self.clock, most_at_once=self._settings.max_workers, callbacks=callbacks
        )
        return replace(
            services,
            random=no_jitter,
            heartbeats=heartbeats,
            callbacks=callbacks,
            events=EventsInLine(self._settings.on_event),
        )


class _UsedInABlock(AbstractContextManager[None]):
    """A block that warns if it never begins."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self._made: dict[tuple[asyncio.AbstractEventLoop | None, bool], Any] = {}
        self._was_entered = False
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._is_async = not isinstance(self._client, FakeLockClient)
        self._was_entered = True
        self._stack.enter_context(default_clients_from(self._client_for, is_async=self._is_async))

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def __del__(self) -> None:
        if not self._was_entered:
            message = "no function uses this client: write `with used_by_locked_functions(…):`"
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _client_for(self, *, heartbeats: bool) -> Any:  # noqa: ANN401 - of either kind
        loop = asyncio.get_running_loop() if self._is_async else None
        if (loop, heartbeats) not in self._made:
            settings: Any = settings_for(heartbeats=heartbeats)
            self._made[loop, heartbeats] = self._client.another("locked function", **settings)
        return self._made[loop, heartbeats]


def used_by_locked_functions(client: FakeClient) -> AbstractContextManager[None]:
    """Within the block, `@locked` functions without a client use the table of this one.

    Each kind of call gets a client with the settings that it would have in production: a Lambda
    handler sends no heartbeats, for instance. Coroutine functions get one per event loop.
    FAIRLOCK_TABLE_NAME need not be set.

    Args:
        client: a `FakeLockClient` for functions, a `FakeAsyncLockClient` for coroutine functions.
    """
    if not isinstance(client, FakeClient):
        rule = "must be a FakeLockClient or a FakeAsyncLockClient, such as FakeLockClient()"
        refuse("client", rule, client)
    return _UsedInABlock(client)
