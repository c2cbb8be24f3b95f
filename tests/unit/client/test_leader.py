"""`LockClient.lead`: work in a thread, which no one can cancel; no two lead, whatever fails.

tests/contracts/client/test_leader.py says what both clients promise.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import Any

import pytest

from fairlock import (
    Lock,
    LockEvent,
)
from fairlock.testing import FakeLockClient

LEASE = 60


@pytest.fixture
def locks() -> FakeLockClient:
    return FakeLockClient()


def test_work_that_goes_on_after_its_lease_is_warned_of(
    locks: FakeLockClient, caplog: pytest.LogCaptureFixture
) -> None:
    terms: list[int] = []

    def work(lock: Lock, _stop: threading.Event) -> None:
        terms.append(lock.fencing_token)
        if len(terms) == 1:
            locks.table.is_down = True
            locks.clock.advance(2 * LEASE)
            locks.table.is_down = False

    with caplog.at_level(logging.WARNING):
        locks.lead("exporter", work, lease=LEASE)
    assert "lock 'exporter' is lost, and its work goes on: another process may lead" in caplog.text
    assert len(terms) == 2


def test_a_leader_that_waits_is_told_in_the_moment_of_its_loss() -> None:
    moments: list[float] = []

    def note(event: LockEvent) -> None:
        if event.kind == "Lost":
            moments.append(client.clock.monotonic())

    def work(lock: Lock, stop: threading.Event) -> None:
        by_force: dict[str, Any] = {"fencing_token": lock.fencing_token, "reason": "it hangs"}
        take_away = partial(client.another().force_release, "exporter", **by_force)
        if not moments:
            client.clock.at(5, take_away)
            assert stop.wait(1000)
            moments.append(client.clock.monotonic())

    client = FakeLockClient(on_event=note)
    client.lead("exporter", work, lease=50)  # Its heartbeats come between two looks of a second.
    assert moments == [12.5, 12.5]


def test_a_signal_that_raises_ends_the_leader_and_frees_its_lock(locks: FakeLockClient) -> None:
    def work(_lock: Lock, _stop: threading.Event) -> None:
        raise SystemExit(0)  # As a handler of SIGTERM does, in the middle of the work.

    with pytest.raises(SystemExit):
        locks.lead("exporter", work)
    assert locks.another().try_acquire("exporter") is not None
