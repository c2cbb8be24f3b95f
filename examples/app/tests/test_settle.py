"""The script, over a lock table in memory: no AWS, and no waiting."""

from __future__ import annotations

import pytest
from settle import settle

from fairlock import LockWaitTimeout
from fairlock.testing import FakeLockClient, ManualClock


def test_each_invoice_is_paid_under_the_lock(fairlock_locks: FakeLockClient) -> None:
    paid: list[tuple[str, int]] = []
    settled = settle(fairlock_locks, "7", ["a", "b"], lambda *what: paid.append(what))
    assert settled == ["a", "b"]
    assert len({token for _, token in paid}) == 1
    assert fairlock_locks.describe("customer/7").holders == ()


def test_nothing_is_paid_while_a_workflow_holds_the_lock(fairlock_locks: FakeLockClient) -> None:
    fairlock_locks.another("workflow").acquire("customer/7")
    paid: list[str] = []
    with pytest.raises(LockWaitTimeout, match="workflow"):
        settle(fairlock_locks, "7", ["a"], lambda invoice, _: paid.append(invoice))
    assert paid == []


def test_paying_stops_when_the_lock_is_lost(
    fairlock_locks: FakeLockClient, fairlock_clock: ManualClock
) -> None:
    def pay_and_stall(*_: object) -> None:
        fairlock_clock.stall(40)  # this process sleeps for longer than its lease

    assert settle(fairlock_locks, "7", ["a", "b"], pay_and_stall) == ["a"]
