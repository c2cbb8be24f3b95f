"""Before and after of docs/migration.md do the same, whether the lock is free, taken or not known.

The program before runs over `tests/support/old_lock_client.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import fairlock
from fairlock import LockStoreUnavailable
from fairlock.testing import FakeLockClient
from tests.support.documents import blocks, python_world
from tests.support.old_lock_client import NAME, DynamoDBLockClient, DynamoDBLockError

TABLE = "Fairlock-LocksTable…"


@pytest.fixture(autouse=True)
def old_library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("python_dynamodb_lock.python_dynamodb_lock")
    for each in (DynamoDBLockClient, DynamoDBLockError):
        setattr(module, each.__name__, each)
    monkeypatch.setitem(sys.modules, "python_dynamodb_lock", ModuleType("python_dynamodb_lock"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(DynamoDBLockClient, "granted", [])
    monkeypatch.setattr(DynamoDBLockClient, "answer", None)


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def before() -> str:
    [code] = [block.code for block in blocks("python") if python_world(block) == "before"]
    return code


def after() -> str:
    found = [block.code for block in blocks("python") if block.document == "docs/migration.md"]
    [code] = [code for code in found if "except LockWaitTimeout" in code]
    return code


def done(code: str, locks: FakeLockClient, *, fails: bool = False) -> list[str]:
    """What a program calls of the reader's, and the error that leaves it."""
    told: list[str] = []

    def charge(**_token: int) -> None:
        told.append("charge")
        if fails:
            raise ValueError

    names: dict[str, Any] = {"charge": charge, "later": lambda: told.append("later")}
    made = mock.patch.object(fairlock, "LockClient", lambda name: {TABLE: locks}[name])
    with made, mock.patch("boto3.resource", lambda service: service):
        try:
            exec(compile(code, "migration.md", "exec"), names)  # noqa: S102 - our own example
        except (ValueError, DynamoDBLockError, LockStoreUnavailable) as error:
            told.append("fails" if isinstance(error, ValueError) else "unknown")
    return told


def held(locks: FakeLockClient) -> bool:
    found = locks.another("observer").describe(NAME)
    return found is not None and bool(found.holders)


@pytest.mark.parametrize(("fails", "told"), [(False, ["charge"]), (True, ["charge", "fails"])])
def test_a_free_lock_is_held_for_the_work_and_released_even_if_the_work_fails(
    locks: FakeLockClient,
    fails: bool,  # noqa: FBT001 - a parameter
    told: list[str],
) -> None:
    assert done(before(), locks, fails=fails) == told
    assert [lock.is_held for lock in DynamoDBLockClient.granted] == [False]
    assert done(after(), locks, fails=fails) == told
    assert not held(locks)


def test_after_two_minutes_without_the_lock_the_work_is_done_later(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout = DynamoDBLockError(DynamoDBLockError.ACQUIRE_TIMEOUT)
    monkeypatch.setattr(DynamoDBLockClient, "answer", timeout)
    assert done(before(), locks) == ["later"]
    locks.another("holder").acquire(NAME)
    began = locks.clock.monotonic()
    assert done(after(), locks) == ["later"]
    assert locks.clock.monotonic() - began == pytest.approx(120, abs=1)


def test_an_outage_is_neither_done_nor_later(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DynamoDBLockClient, "answer", DynamoDBLockError())
    assert done(before(), locks) == ["unknown"]
    locks.table.is_down = True
    assert done(after(), locks) == ["unknown"]
