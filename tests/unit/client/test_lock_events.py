"""The hook for metrics: told of everything once, and able to harm nothing."""

from __future__ import annotations

import math
import sys
import threading

import pytest

from fairlock import (
    InvalidRequest,
    LockClient,
    LockEvent,
    LockLost,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from fairlock.client import reporting
from fairlock.client.reporting import LockEvents
from fairlock.testing import FakeLockClient, FakeTable

BOUND_SECONDS = 30


class Told:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[LockEvent] = []

    def __call__(self, event: LockEvent) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def locks(told: Told) -> FakeLockClient:
    return FakeLockClient(lease=30, on_event=told)


def test_a_grant_tells_the_wait_and_a_release_tells_how_long_it_was_held(
    locks: FakeLockClient, told: Told
) -> None:
    other = locks.another().acquire("a")
    locks.clock.at(10, other.release)
    lock = locks.acquire("a")
    locks.clock.advance(40)
    assert lock.release() is True
    assert lock.release() is True
    granted, released = told.events
    assert (granted.kind, released.kind) == ("Granted", "Released")
    assert granted.waited_seconds is not None
    assert 10 <= granted.waited_seconds < 15
    assert released.held_seconds is not None
    assert 40 <= released.held_seconds < 60
    assert granted.fencing_token == released.fencing_token == lock.fencing_token
    assert granted.held_seconds is released.waited_seconds is None


def test_a_refusal_a_timeout_and_an_unknown_outcome_are_three_events(
    locks: FakeLockClient, told: Told
) -> None:
    locks.another().acquire("a")
    assert locks.try_acquire("a") is None
    with pytest.raises(LockWaitTimeout):
        locks.acquire("a", max_wait=20)
    locks.table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        locks.acquire("b", max_wait=5)
    with pytest.raises(InvalidRequest):
        locks.acquire("")
    assert told.kinds() == ["Refused", "TimedOut", "Failed"]
    assert [event.reason for event in told.events] == ["", "", "LockStoreUnavailable"]
    assert told.events[1].waited_seconds == 20


def test_late_heartbeats_are_a_danger_and_then_a_loss_each_once(
    locks: FakeLockClient, told: Told
) -> None:
    lock = locks.acquire("a")
    locks.table.is_down = True
    locks.clock.advance(60)
    with pytest.raises(LockLost):
        lock.check()
    locks.table.is_down = False
    assert lock.release() is False
    assert told.kinds() == ["Granted", "InDanger", "Lost"]
    assert told.events[-1].held_seconds == pytest.approx(30, abs=1)


def test_a_release_by_a_transaction_and_one_at_the_end_of_the_client_are_told(
    locks: FakeLockClient, told: Told
) -> None:
    with locks:
        guard = locks.another().acquire("guard")
        locks.acquire("a").transact_write([guard.condition_check()], release=True)
        locks.acquire("b")
        assert told.kinds() == ["Granted", "Released", "Granted"]
    assert told.kinds() == ["Granted", "Released", "Granted", "Released"]


def test_a_release_of_unknown_outcome_is_no_event_until_it_is_known(
    locks: FakeLockClient, told: Told
) -> None:
    lock = locks.acquire("a")
    locks.table.is_down = True
    with pytest.raises(LockStoreUnavailable):
        lock.release()
    assert told.kinds() == ["Granted"]
    locks.table.is_down = False
    lock.release()
    assert told.kinds() == ["Granted", "Released"]


def test_the_hook_adds_no_request_and_no_event_proves_ownership(
    locks: FakeLockClient, told: Told
) -> None:
    with locks.hold("a") as lock:
        pass
    assert locks.table.requests == ["update_item"] * 2
    assert all(lock.owner_id not in repr(event) for event in told.events)


def real_client(hook: object) -> LockClient:
    """With threads, as in production."""
    return LockClient("locks", client=FakeTable(), heartbeat_every=math.inf, on_event=hook)  # type: ignore[arg-type]  # in memory


def test_events_come_in_order_and_all_before_the_client_is_closed(told: Told) -> None:
    with real_client(told) as locks:
        for name in "abc":
            locks.acquire(name).release()
    assert told.kinds() == ["Granted", "Released"] * 3
    assert [event.lock_name for event in told.events] == list("aabbcc")
    locks.close()


def test_a_hook_that_hangs_delays_neither_requests_nor_for_long_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_CLOSE_SECONDS", 0.05)
    hangs, goes_on = threading.Event(), threading.Event()

    def hook(_event: LockEvent) -> None:
        hangs.set()
        goes_on.wait(BOUND_SECONDS)

    with real_client(hook) as locks:
        locks.acquire("a").release()
        assert hangs.wait(BOUND_SECONDS)
        locks.acquire("b").release()
    assert "on_event is still busy" in caplog.text
    goes_on.set()


def test_what_the_hook_raises_is_logged_and_the_next_event_comes(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(event: LockEvent) -> None:
        told(event)
        raise ValueError("on purpose")

    with real_client(hook) as locks, locks.hold("a") as lock:
        lock.check()
    assert told.kinds() == ["Granted", "Released"]
    assert caplog.text.count("on_event failed") == 2


def test_a_hook_may_close_its_client(told: Told) -> None:
    is_closed = threading.Event()

    def hook(event: LockEvent) -> None:
        told(event)
        if event.kind == "Released":
            client.close()
            is_closed.set()

    client = real_client(hook)
    client.acquire("a").release()
    assert is_closed.wait(BOUND_SECONDS)


def test_a_hook_that_is_too_slow_misses_events_and_memory_stays_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_MOST_WAITING", 3)
    monkeypatch.setattr(reporting, "_CLOSE_SECONDS", BOUND_SECONDS)
    begun, goes_on = threading.Event(), threading.Event()
    told = Told()

    def hook(event: LockEvent) -> None:
        told(event)
        begun.set()
        goes_on.wait(BOUND_SECONDS)

    events = LockEvents(hook)
    events.report(reporting.LockEventKind.GRANTED, lock_name="0", owner_name="")
    assert begun.wait(BOUND_SECONDS)
    for number in range(1, 10):
        events.report(reporting.LockEventKind.GRANTED, lock_name=str(number), owner_name="")
    goes_on.set()
    events.close()
    assert [event.lock_name for event in told.events] == ["0", "1", "2", "3"]
    assert caplog.text.count("events are dropped") == 1


def test_a_hook_that_wants_to_end_the_process_is_logged_and_called_with_the_next_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []

    def hook(event: LockEvent) -> None:
        told.append(event.lock_name)
        sys.exit(1)

    events = LockEvents(hook)
    for name in ("a", "b"):
        events.report(reporting.LockEventKind.GRANTED, lock_name=name, owner_name="")
    events.close()
    assert told == ["a", "b"]
    assert caplog.text.count("on_event failed") == caplog.text.count("SystemExit: 1") == 2


def test_without_a_hook_there_is_no_thread_and_with_one_that_cannot_start_no_error(
    told: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = threading.enumerate()
    events = LockEvents(None)
    events.report(reporting.LockEventKind.LOST, lock_name="a", owner_name="")
    assert (events.has_thread, threading.enumerate()) == (False, before)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    events = LockEvents(told)
    with monkeypatch.context() as patches:
        patches.setattr(threading.Thread, "start", refuse)
        events.report(reporting.LockEventKind.LOST, lock_name="a", owner_name="")
    events.report(reporting.LockEventKind.LOST, lock_name="b", owner_name="")
    events.close()
    assert [event.lock_name for event in told.events] == ["a", "b"]
    assert "no thread for on_event" in caplog.text


def test_a_hook_must_be_a_function() -> None:
    with pytest.raises(InvalidRequest, match="on_event: must be a function"):
        FakeLockClient(on_event="metrics")  # type: ignore[arg-type]  # on purpose
