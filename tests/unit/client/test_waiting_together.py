"""Waiters and holders of one client: a release wakes the next waiter at once, without a read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlock import ClientUnusable, Lock, LockClient, LockStoreUnavailable, LockWaitTimeout
from fairlock.client.local_waiters import LocalQueue
from fairlock.testing import ManualClock
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import Table


@pytest.fixture
def locks(make_client: MakeClient) -> LockClient:
    return make_client(lease=600)


@pytest.fixture
def first(locks: LockClient) -> Lock:
    """Held by the client whose other callers wait."""
    return locks.acquire("a")


def test_a_waiter_has_the_lock_in_the_moment_of_its_release(
    locks: LockClient, table: Table, clock: ManualClock, first: Lock
) -> None:
    clock.at(10, first.release)
    second = locks.acquire("a", max_wait=60, lease=30)
    assert second.fencing_token == first.fencing_token + 1
    assert clock.monotonic() == 10
    assert second.remaining <= 30, "it counts from before the hand-off"
    polls = [name for name in table.requests if name == "query"][1:-1]  # Join and hand-off.
    assert len(polls) <= 3  # One in `longest_poll`, in case that the holder has died.


def test_a_release_with_a_lost_reply_tells_no_one_and_costs_a_poll(
    locks: LockClient, table: Table, clock: ManualClock, first: Lock
) -> None:
    def release_unheard(name: str, _arguments: object) -> None:
        table.loses_replies = name == "transact_write_items"

    def release() -> None:
        table.before = release_unheard
        first.release()
        table.before, table.loses_replies = None, False

    clock.at(10, release)
    second = locks.acquire("a", max_wait=60)
    assert second.fencing_token == first.fencing_token + 1
    assert clock.monotonic() <= 21


def interrupt(_locks: LockClient) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "error"),
    [(interrupt, KeyboardInterrupt), (LockClient.close, ClientUnusable)],
    ids=["interrupted", "closed"],
)
def test_a_waiter_that_is_interrupted_or_closed_in_the_moment_of_its_grant_gives_it_back(
    locks: LockClient,
    table: Table,
    clock: ManualClock,
    first: Lock,
    *,
    end: Callable[[LockClient], None],
    error: type[BaseException],
) -> None:
    def release_and_end() -> None:
        first.release()
        end(locks)

    clock.at(10, release_and_end)
    with pytest.raises(error):
        locks.acquire("a", max_wait=60)
    assert table.traces("a") == []


def test_a_client_that_is_closed_while_its_first_request_is_granted_gives_that_back(
    locks: LockClient, table: Table
) -> None:
    def close(_name: str, _arguments: object) -> None:
        table.before = None
        locks.close()

    table.before = close
    with pytest.raises(ClientUnusable):
        locks.acquire("a", max_wait=0)
    assert table.state("a").held == 0


def test_a_wrong_wake_is_a_poll_and_no_grant(
    locks: LockClient, clock: ManualClock, first: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = LocalQueue.add

    def add_and_wake(queue: LocalQueue, *args: object) -> object:
        waiter = added(queue, *args)  # type: ignore[arg-type]  # as it was called
        for seconds in (1, 2, 3):
            clock.at(seconds, waiter.alarm.ring)
        return waiter

    monkeypatch.setattr(LocalQueue, "add", add_and_wake)
    with pytest.raises(LockWaitTimeout):
        locks.acquire("a", max_wait=20)
    first.check()


def test_a_holder_of_this_client_that_vanishes_is_noticed_by_polls(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    """Its release fails, so it tells no one; the lease ends it."""
    locks = make_client(lease=30)
    first = locks.acquire("a")

    def release_in_vain() -> None:
        table.is_down = True
        with pytest.raises(LockStoreUnavailable):
            first.release()
        table.is_down = False

    clock.at(10, release_in_vain)
    second = locks.acquire("a", max_wait=120)
    assert second.fencing_token == first.fencing_token + 1
    assert clock.monotonic() < 75


def test_a_forked_child_knows_no_waiters_of_its_parent(locks: LockClient) -> None:
    before = locks._services.local_waiters  # noqa: SLF001 - what is reset
    locks._reset_after_fork()  # noqa: SLF001 - as a fork does
    assert locks._services.local_waiters is not before  # noqa: SLF001 - same
