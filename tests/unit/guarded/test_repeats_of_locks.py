"""A lock whose transaction has an unknown outcome: the repeat tells, whatever became of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.client.base_lock import BaseLock
from fairlock.guarded.guarded_writes import GuardedWrites
from tests.support import LOCK, TABLE, FakeClock
from tests.support.faults import FaultyClient, client_error, lost_reply
from tests.unit.guarded.bench import Bench, deposit

LEASE_SECONDS = 30
EACH_WAY = pytest.mark.parametrize("release", [False, True])


def lock_over(client: Any, clock: FakeClock) -> Lock:  # noqa: ANN401 - a client, or what wraps one
    locks = LockClient(
        TABLE, client=client, clock=clock, lease=LEASE_SECONDS, heartbeat_every=math.inf
    )
    return locks.acquire(LOCK)


@pytest.fixture
def lock(bench: Bench, clock: FakeClock) -> Iterator[Lock]:
    """A lock whose first transaction happened, and whose reply to it got lost."""
    client = FaultyClient(bench.inner, lost_reply(), when="after", calls=[0])
    lock = lock_over(client, clock)
    client.calls = [client.count + 1]
    yield lock
    lock.release()


def unknown(lock: Lock, *, release: bool) -> None:
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([deposit("x")], token="one", release=release)


@EACH_WAY
def test_a_repeat_after_the_end_of_the_lease_tells_of_the_commit(
    bench: Bench, lock: Lock, clock: FakeClock, *, release: bool
) -> None:
    unknown(lock, release=release)
    clock.advance(LEASE_SECONDS + 1)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1
    with pytest.raises(LockLost):
        lock.transact_write([deposit("x")], token="two", release=release)
    assert bench.balance("x") == 1


def test_without_a_token_the_lock_says_lost_of_the_repeat(
    bench: Bench, lock: Lock, clock: FakeClock
) -> None:
    """The negative control."""
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([deposit("x")])
    clock.advance(LEASE_SECONDS + 1)
    with pytest.raises(LockLost):
        lock.transact_write([deposit("x")])
    assert bench.balance("x") == 1


def test_a_repeat_after_a_release_tells_of_the_commit(bench: Bench, lock: Lock) -> None:
    unknown(lock, release=True)
    assert lock.release()
    lock.transact_write([deposit("x")], token="one", release=True)
    assert bench.balance("x") == 1


@EACH_WAY
def test_a_repeat_that_is_not_let_in_is_forgotten_by_nobody(
    bench: Bench, clock: FakeClock, *, release: bool
) -> None:
    """Expired credentials, say: then it is still unknown whether the first try was written."""
    client = FaultyClient(bench.inner, lost_reply(), when="after", calls=[0])
    lock = lock_over(client, clock)
    client.calls = [client.count + 1]
    unknown(lock, release=release)
    client.when, client.error = "before", client_error("ExpiredTokenException")
    client.calls = [client.count + 1]
    with pytest.raises(Exception, match="ExpiredToken"):
        lock.transact_write([deposit("x")], token="one", release=release)
    lock.transact_write([deposit("x")], token="one", release=release)
    assert bench.balance("x") == 1


def test_threads_that_begin_together_share_one_memory(
    bench: Bench, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_over(bench.inner, clock)
    together = threading.Barrier(2)
    make = GuardedWrites.__init__

    def make_together(self: GuardedWrites, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as it is
        together.wait(10)
        make(self, *args, **kwargs)

    monkeypatch.setattr(GuardedWrites, "__init__", make_together)
    made: list[GuardedWrites] = []
    threads = [
        threading.Thread(target=lambda: made.append(BaseLock._guarded(lock)))  # noqa: SLF001 - seen from nowhere else
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert made[0] is made[1]
