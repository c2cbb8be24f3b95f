"""Ctrl-C, or a signal handler that raises: no heartbeat ends by it, and no lock stays behind."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

import pytest

from fairlock import ClientUnusable, Lock, LockClient, LockStoreUnavailable, LockWaitTimeout, locked
from fairlock.client.reporting import LockEventKind, LockEvents
from tests.support import Operations, acquire, in_a_thread, release, store_over
from tests.support.faulty_table import READS, REQUESTS, TRANSACTIONS, Fault, down, fault, meanwhile
from tests.unit.client.conftest import Near
from tests.unit.client.doubles import Table, TimeLimitError, interrupt

LEASE_SECONDS = 3600.0
pytestmark = pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
"""Of a block that an interrupt has kept from beginning."""
MOST_MOMENTS = 500
OUR_CODE = "fairlock/client/"
RETURNS_OF_THE_LOCK = 2
"""From `_acquire`, and from `acquire` or to the block: Python runs no signal handler there."""


def is_free(lock: threading.RLock) -> bool:
    """Whether another thread gets it."""

    def look() -> bool:
        got = lock.acquire(timeout=0.5)
        if got:
            lock.release()
        return got

    free: bool = in_a_thread(look).result(0)
    return free


def moments_after_which(attempt: Callable[[int], tuple[bool, bool]]) -> list[int]:
    """Makes an attempt at each of its moments.

    Args:
        attempt: is interrupted at a moment; returns whether it came to that, and whether something
            is wrong after it.

    Returns:
        The moments after which something is wrong.
    """
    wrong: list[int] = []
    for at in range(MOST_MOMENTS):
        came, is_wrong = attempt(at)
        if not came:
            return wrong
        if is_wrong:
            wrong.append(at)
    raise AssertionError("this takes more moments than were tried")


def test_an_interrupt_at_any_moment_of_add_and_remove_leaves_no_lock_locked(near: Near) -> None:
    def attempt(at: int) -> tuple[bool, bool]:
        locks = near.client(lease=LEASE_SECONDS)
        heartbeats = locks._services.heartbeats  # noqa: SLF001 - an interrupt is aimed at it
        lock = locks.acquire("a")
        actions = [partial(act, lock._handle) for act in (heartbeats.remove, heartbeats.add)]  # noqa: SLF001 - same
        came = [interrupt(action, at=at) for action in actions]
        stopped = not is_free(heartbeats._mutex)  # noqa: SLF001 - same
        with suppress(RuntimeError):
            if stopped:
                heartbeats._mutex.release()  # noqa: SLF001 - for the end of the test
        lock.release()
        return any(came), stopped

    assert moments_after_which(attempt) == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), TimeLimitError()], ids=repr)
def test_an_interrupted_release_is_tried_once_more_and_the_interrupt_goes_on(
    near: Near, error: BaseException, *, when: Literal["before", "after"]
) -> None:
    """Also at the end of a block, and one that is no more than an Exception: nothing is logged."""
    told: list[Lock] = []
    locks = near.client(lease=LEASE_SECONDS)
    lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    near.table.will(fault(error, 1, when=when))
    with pytest.raises(type(error)), lock:
        pass
    assert near.table.state("a").held == 0
    assert (lock.release(), lock.lost.is_set(), told) == (True, False, [])


def test_an_impatient_interrupt_leaves_the_release_to_the_end_of_the_client(near: Near) -> None:
    """Ctrl-C, Ctrl-C in a release at the end of two blocks."""
    locks = near.client(lease=LEASE_SECONDS)
    with suppress(KeyboardInterrupt), locks, locks.hold("a"):
        near.table.will(fault(KeyboardInterrupt(), [1, 2]))
    assert near.table.state("a").held == 0


def test_what_is_free_or_over_is_not_remembered(near: Near) -> None:
    locks = near.client(lease=10, heartbeat_every=math.inf)
    for number in range(3):
        lock = locks.acquire(f"over-{number}")
        near.table.will(down(ConnectionResetError()))
        with pytest.raises(ConnectionResetError):
            lock.release()
        near.table.will()
    remembered = locks._services.unreleased  # noqa: SLF001 - nothing outside tells that
    assert len(remembered.unsettled()) == 3
    near.clock.advance(11)
    assert remembered.unsettled() == []
    locks.acquire("free").release()
    assert remembered._all == {}  # noqa: SLF001 - same


def moments_that_leave_the_lock(
    near: Near, use: Callable[[LockClient], object], within: str
) -> list[int]:
    """Interrupts a use of a lock; after some moments only its client knows of it."""

    def attempt(at: int) -> tuple[bool, bool]:
        locks = near.client(lease=LEASE_SECONDS)
        came = interrupt(partial(use, locks), at=at, within=within)
        is_left = near.table.state("a").held > 0
        locks.close(release=True)
        assert near.table.state("a").held == 0, "the client knows of the grant"
        return came, is_left

    return moments_after_which(attempt)


def hold(locks: LockClient) -> None:
    with locks.hold("a"):
        pass


def call(locks: LockClient) -> None:
    locked("a", client=locks)(lambda: None)()


@pytest.mark.parametrize(
    ("use", "within", "most_left"),
    [
        (hold, OUR_CODE, RETURNS_OF_THE_LOCK),
        (lambda locks: locks.acquire("a"), OUR_CODE, RETURNS_OF_THE_LOCK),
        (call, "fairlock/decorator/", 0),
        (call, "contextlib", 0),
    ],
    ids=["hold", "acquire", "locked", "locked, in contextlib"],
)
def test_an_interrupt_at_any_moment_of_a_use_leaves_no_lock(
    near: Near, use: Callable[[LockClient], object], within: str, most_left: int
) -> None:
    assert len(moments_that_leave_the_lock(near, use, within)) <= most_left


def test_an_interrupt_at_any_moment_of_the_start_of_threads_leaves_a_client_that_renews() -> None:
    def attempt(at: int) -> tuple[bool, bool]:
        table = Table()
        locks = LockClient("locks", client=table, heartbeat_every=0.05)
        heartbeats = locks._services.heartbeats  # noqa: SLF001 - an interrupt is aimed at it

        def start() -> None:
            with heartbeats._mutex:  # noqa: SLF001 - as `add` does
                heartbeats._start()  # noqa: SLF001 - same

        came = interrupt(start, at=at, within=OUR_CODE)
        lock = locks.acquire("a")
        is_renewed = table.does_more(1, seconds=5)
        assert lock.name == "a"
        locks.close(release=True)
        return came, not is_renewed

    assert moments_after_which(attempt) == []


def test_an_interrupted_adoption_leaves_no_heartbeats(near: Near) -> None:
    """Its caller has got no lock then, so it would never be released."""
    owner_id = near.client(lease=LEASE_SECONDS).acquire("a").owner_id
    locks = near.client(lease=LEASE_SECONDS)
    heartbeats = locks._services.heartbeats  # noqa: SLF001 - nothing outside tells that

    def attempt(at: int) -> tuple[bool, bool]:
        came = interrupt(lambda: locks.adopt("a", owner_id), at=at, within=OUR_CODE)
        left = heartbeats.handles()
        for handle in left:
            heartbeats.remove(handle)
        return came, bool(left)

    assert len(moments_after_which(attempt)) <= 1  # The return of the lock.


def test_an_interrupt_at_any_moment_of_the_first_event_does_not_silence_the_hook() -> None:
    def attempt(at: int) -> tuple[bool, bool]:
        told: list[str] = []
        events = LockEvents(lambda event: told.append(event.lock_name))
        report = partial(events.report, LockEventKind.GRANTED, owner_name="anna")
        came = interrupt(partial(report, lock_name="a"), at=at, within="/threading.py")
        report(lock_name="b")
        events.close()
        return came, "b" not in told

    assert moments_after_which(attempt) == []


# Interrupts of a client that waits: if one comes again, the end of the client leaves the queue.


@pytest.fixture
def store(near: Near) -> Operations:
    return store_over(near.table, near.clock)


def interrupted_wait(near: Near, store: Operations, locks: LockClient, presses: int) -> None:
    """Presses Ctrl-C in the first poll, and again before each of the next requests."""
    store.acquire(acquire("holder", lock_name="a"))
    again = [fault(KeyboardInterrupt(), number, of=REQUESTS) for number in range(1, presses)]
    first = fault(KeyboardInterrupt(), 1, of=READS, then=lambda: near.table.will(*again))
    near.table.will(Fault(of=TRANSACTIONS, after=lambda: near.table.will(first)))
    with pytest.raises(KeyboardInterrupt):
        locks.acquire("a", max_wait=30)
    near.table.will()


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_an_interrupted_waiter_leaves_the_queue_at_once_or_with_the_end_of_its_client(
    near: Near, store: Operations, presses: int
) -> None:
    """A client that did not remember its place would be handed the lock."""
    locks = near.client("anna")
    interrupted_wait(near, store, locks, presses)
    assert near.table.waiters("a") == ([] if presses == 1 else ["anna"])
    near.table.requests.clear()
    locks.close(release=True)
    assert (near.table.waiters("a"), near.table.state("a").contended) == ([], False)
    assert (near.table.requests == []) is (presses == 1)
    store.release(release("holder", lock_name="a"))
    assert near.table.state("a").held == 0


def test_a_wait_that_failed_is_not_tried_again_at_the_end_of_the_client(near: Near) -> None:
    """All was tried to undo it, and an outage should not delay the end of a program."""
    locks = near.client("anna")
    near.table.will(down())
    with pytest.raises(LockStoreUnavailable):
        locks.acquire("a", max_wait=0)
    near.table.will()
    locks.close(release=True)
    assert near.table.requests == []


def test_a_wait_in_another_thread_is_left_to_that_thread(near: Near) -> None:
    near.client("holder").acquire("a")
    locks = near.client("anna")
    found: list[list[object]] = []

    def look() -> None:
        remembered = locks._services.unreleased  # noqa: SLF001 - what is remembered is the point
        found.append([*in_a_thread(remembered.unsettled).result(0)])

    near.table.will(meanwhile(1, look, of=TRANSACTIONS))
    with suppress(LockWaitTimeout):
        locks.acquire("a", max_wait=0.2)
    assert found == [[]]


def test_a_waiter_that_is_interrupted_while_it_gives_up_leaves_the_queue(near: Near) -> None:
    near.client("anna").acquire("a")

    near.clock.at(5, lambda: near.table.will(fault(KeyboardInterrupt(), 1, of=TRANSACTIONS)))
    with pytest.raises(KeyboardInterrupt):
        near.client("ben").acquire("a", max_wait=5)
    assert near.table.waiters("a") == []


def test_a_waiter_that_is_interrupted_in_the_moment_of_its_grant_gives_it_back(near: Near) -> None:
    locks = near.client(lease=600)
    first = locks.acquire("a")

    def release_and_interrupt() -> None:
        first.release()
        raise KeyboardInterrupt

    near.clock.at(10, release_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        locks.acquire("a", max_wait=60)
    assert near.table.traces("a") == []


def test_a_client_closed_as_its_first_request_is_granted_gives_that_back(near: Near) -> None:
    locks = near.client()

    near.table.will(meanwhile(1, locks.close))
    with pytest.raises(ClientUnusable):
        locks.acquire("a", max_wait=0)
    assert near.table.state("a").held == 0
