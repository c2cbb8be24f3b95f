"""A member of `class Name(str, Enum)` is text that an f-string shows as something else."""

from __future__ import annotations

from enum import Enum

import pytest

from fairlock import LockWaitTimeout
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, run_in_virtual_time


class Name(str, Enum):  # noqa: UP042 - StrEnum has no such text; programs have both
    ORDERS = "orders"
    OWNER = "anna"


class Seconds(int, Enum):
    TWO = 2


@pytest.fixture
def locks() -> FakeLockClient:
    return FakeLockClient()


def is_excluded(locks: FakeLockClient) -> bool:
    """Whether a program that names the lock by its text waits for one that has an enumeration."""
    locks.acquire(Name.ORDERS)
    return locks.another().try_acquire("orders") is None


def test_a_member_of_an_enumeration_names_the_lock_of_its_text(locks: FakeLockClient) -> None:
    assert is_excluded(locks)
    assert [lock.name for lock in locks.list()] == ["orders"]


def test_without_that_both_would_hold_it(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_it_is = "fairlock.wire.rules.plain_text"
    monkeypatch.setattr(as_it_is, lambda _field, _rule, value: value)
    assert not is_excluded(locks)


def test_it_is_found_described_adopted_and_released_by_force_by_its_text(
    locks: FakeLockClient,
) -> None:
    lock = locks.acquire("orders", owner_name=Name.OWNER)
    assert [found.name for found in locks.list(prefix=Name.ORDERS)] == ["orders"]
    described = locks.describe(Name.ORDERS)
    assert described is not None
    assert repr(described.holders[0].owner_name) == "'anna'"
    assert locks.adopt(Name.ORDERS, lock.owner_id).fencing_token == lock.fencing_token
    locks.force_release(Name.ORDERS, holder=described.holders[0], reason=Name.OWNER)
    after = locks.describe("orders")
    assert after is not None
    assert after.holders == ()


def test_an_asyncio_client_finds_it_by_its_text() -> None:
    async def holders() -> int:
        async with FakeAsyncLockClient() as locks:
            await locks.acquire("orders")
            described = await locks.describe(Name.ORDERS)
            return 0 if described is None else len(described.holders)

    assert run_in_virtual_time(holders()) == 1


def test_a_wait_that_is_a_member_of_an_enumeration_ends_as_any_other(locks: FakeLockClient) -> None:
    locks.acquire("orders")
    with pytest.raises(LockWaitTimeout, match="not handed over within 2 s"):
        locks.another().acquire("orders", max_wait=Seconds.TWO)
