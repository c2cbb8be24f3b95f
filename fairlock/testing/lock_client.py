"""`FakeLockClient`: a `LockClient` without AWS and without threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, Unpack

from fairlock.client.lease_handle import LeaseHandle
from fairlock.client.lock import LockServices
from fairlock.client.lock_client import LockClient
from fairlock.client.settings import ClientOptions
from fairlock.testing.clock import ManualClock
from fairlock.testing.fake_table import FakeTable
from fairlock.testing.heartbeats import ManualHeartbeats, no_jitter
from fairlock.testing.in_line import CallbacksInLine, EventsInLine


class FakeLockClient(LockClient):
    """A `LockClient` for tests: its own code and protocol, over a table in memory.

    Guaranteed: what it answers, raises and reports is what a `LockClient` would, because it is one:
    exclusion, queue, fencing tokens that grow, leases, heartbeats, losses, forced releases, the
    number of requests. Nothing sleeps, no thread is started, nothing leaves the process. Callbacks
    are called in the thread of the test.

    Not guaranteed: the writes of `Lock.transact_write` to other tables (`NotImplementedError`), and
    what several threads do at once. docs/testing.md says what to use for these.

    Args:
        table: the lock table; None makes one. Clients exclude each other if they share it.
        clock: the present; None makes one. Clients of one table share one clock.
        settings: as of `LockClient`.

    Attributes:
        table: the lock table: counts requests, and can fail.
        clock: the clock, to be moved.

    Raises:
        InvalidRequest: a setting breaks its rule.
    """

    def __init__(
        self,
        *,
        table: FakeTable | None = None,
        clock: ManualClock | None = None,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self.table = table or FakeTable()
        self.clock = self.table.clock = clock or ManualClock()
        settings.setdefault("owner_name", "test")
        super().__init__("fake-locks", client=self.table, clock=self.clock, **settings)

    @classmethod
    def from_stack(
        cls, stack_name: str, *, session: object = None, **settings: Unpack[ClientOptions]
    ) -> Self:
        """A client over a table of its own; nothing is read."""
        del stack_name, session
        return cls(**settings)

    def another(self, owner_name: str = "other", /, **settings: Unpack[ClientOptions]) -> Self:
        """A client of the same table and clock, as another process would have it."""
        settings["owner_name"] = owner_name
        return type(self)(table=self.table, clock=self.clock, **settings)

    def _new_services(self) -> LockServices:
        services = super()._new_services()
        callbacks = CallbacksInLine()
        heartbeats = ManualHeartbeats(
            self.clock, most_at_once=self._settings.max_workers, callbacks=callbacks
        )
        return replace(
            services,
            store_factory=replace(services.store_factory, random=no_jitter),
            heartbeats=heartbeats,
            callbacks=callbacks,
            events=EventsInLine(self._settings.on_event),
        )

    def _release_all(self, handles: Sequence[LeaseHandle]) -> None:
        for handle in handles:
            self._services.heartbeats.remove(handle)
            handle.release_at_close()
