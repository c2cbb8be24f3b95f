"""The fixtures, and what `@locked` functions use beside them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

import fairlock.testing
from fairlock import InvalidRequest, Lock, locked
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, ManualClock


@dataclass
class Context:
    """Of a Lambda invocation that has 20 s left."""

    def get_remaining_time_in_millis(self) -> int:
        return 20_000


@locked("handler")
def handler(_event: object, _context: Context, *, lock: Lock | None = None) -> float:
    assert lock is not None
    return lock.remaining


@locked("report")
def report(clock: ManualClock) -> str:
    clock.advance(600)
    return "written"


def test_a_locked_function_is_renewed_and_a_handler_has_the_lease_of_its_invocation(
    fairlock_locks: FakeLockClient, fairlock_clock: ManualClock
) -> None:
    assert handler({}, Context()) == pytest.approx(21)
    assert report(fairlock_clock) == "written"
    assert fairlock_locks.table.requests.count("update_item") > 2 + 2


def test_without_the_fixture_a_locked_function_has_no_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    with pytest.raises(InvalidRequest, match="FAIRLOCK_TABLE_NAME"):
        report(ManualClock())


def test_the_asyncio_client_needs_no_event_loop_to_be_made(
    fairlock_async_locks: FakeAsyncLockClient,
) -> None:
    assert fairlock_async_locks.table.requests == []


def test_without_moto_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)
    with pytest.raises(ImportError, match="from its repository with the extra 'testing'"):
        request.getfixturevalue("fairlock_table")


def test_names_are_imported_when_they_are_asked_for() -> None:
    assert all(hasattr(fairlock.testing, name) for name in fairlock.testing.__all__)
    with pytest.raises(AttributeError, match="FakeSemaphore"):
        _ = fairlock.testing.FakeSemaphore
