"""Waiters and holders of one client: a release wakes the next waiter at once, without a read."""

from __future__ import annotations

import random
import threading
import time

import pytest

from fairlock import ClientUnusable, LockClient, LockWaitTimeout
from fairlock.client.local_waiters import LocalQueue, LocalWaiters
from tests.support.faulty_table import READS, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import EventfulClock, Table, Together

THREADS, SECTIONS = 8, 5


def nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The protection taken away: waiters poll, and know nothing of each other."""
    monkeypatch.setattr(LocalWaiters, "note", lambda *_: None)
    monkeypatch.setattr(LocalQueue, "is_held_by_this_client", lambda _: False)


@pytest.mark.parametrize("told", [True, False])
def test_a_waiter_has_the_lock_in_the_moment_of_its_release(
    make_client: MakeClient,
    table: Table,
    clock: EventfulClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    told: bool,
) -> None:
    if not told:
        nothing_is_told(monkeypatch)
    locks = make_client(lease=600)
    first = locks.acquire("a")
    began = clock.now_ms
    clock.at(10, first.release)
    second = locks.acquire("a", max_wait=60)
    assert second.fencing_token == first.fencing_token + 1
    assert (clock.now_ms == began + 10_000) is told
    polls = [name for name in table.log if name == "query"][1:-1]  # Join and hand-off, one each.
    assert (len(polls) <= 3) is told  # One in `longest_poll`, in case that the holder has died.


def test_the_lease_of_a_waiter_that_was_told_counts_from_before_the_hand_off(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    locks = make_client(lease=600)
    first = locks.acquire("a")
    clock.at(10, first.release)
    second = locks.acquire("a", max_wait=60, lease=30)
    assert second.remaining <= 30


def test_a_release_with_a_lost_reply_tells_no_one_and_costs_a_poll(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    locks = make_client(lease=600)
    first = locks.acquire("a")
    began = clock.now_ms

    def release_unheard(name: str, _arguments: object) -> None:
        table.loses_replies = name == "transact_write_items"

    def release() -> None:
        table.before = release_unheard
        first.release()
        table.before, table.loses_replies = None, False

    clock.at(10, release)
    second = locks.acquire("a", max_wait=60)
    assert second.fencing_token == first.fencing_token + 1
    assert clock.now_ms <= began + 21_000


def test_a_waiter_that_is_interrupted_in_the_moment_of_its_grant_gives_it_back(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    locks = make_client(lease=600)
    first = locks.acquire("a")

    def release_and_interrupt() -> None:
        first.release()
        raise KeyboardInterrupt

    clock.at(10, release_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        locks.acquire("a", max_wait=60)
    assert (table.state("a").held, table.waiters("a")) == (0, [])


def test_a_client_that_is_closed_in_the_moment_of_a_grant_gives_it_back(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    locks = make_client(lease=600)
    first = locks.acquire("a")

    def release_and_close() -> None:
        first.release()
        locks.close()

    clock.at(10, release_and_close)
    with pytest.raises(ClientUnusable):
        locks.acquire("a", max_wait=60)
    assert (table.state("a").held, table.waiters("a")) == (0, [])


def test_a_grant_in_the_moment_of_leaving_goes_to_the_next_waiter(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    """The deadline is over, the last poll found nothing, and then the release comes."""
    locks = make_client(lease=600)
    first = locks.acquire("a")
    ends_ms = clock.now_ms + 10_000
    released: list[int] = []

    def release_before_leaving(name: str, _arguments: object) -> None:
        if name == "update_item" and clock.now_ms == ends_ms and not released:
            released.append(1)
            first.release()

    table.before = release_before_leaving
    with pytest.raises(LockWaitTimeout):
        locks.acquire("a", max_wait=10)
    assert released
    assert (table.state("a").held, table.waiters("a")) == (0, [])


def test_a_wrong_wake_is_a_poll_and_no_grant(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = make_client(lease=600)
    first = locks.acquire("a")
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
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    """Its release fails, so it tells no one; the lease ends it."""
    locks = make_client(lease=30)
    first = locks.acquire("a")

    def release_in_vain() -> None:
        table.outage = lost_reply()
        with pytest.raises(Exception, match="unknown"):
            first.release()
        table.outage = None

    clock.at(10, release_in_vain)
    began = clock.now_ms
    second = locks.acquire("a", max_wait=120)
    assert second.fencing_token == first.fencing_token + 1
    assert clock.now_ms - began < 75_000


def test_a_forked_child_knows_no_waiters_of_its_parent(make_client: MakeClient) -> None:
    locks = make_client()
    before = locks._services.store_factory.local_waiters  # noqa: SLF001 - what is reset
    locks._reset_after_fork()  # noqa: SLF001 - as a fork does
    assert locks._services.store_factory.local_waiters is not before  # noqa: SLF001 - same


def passed_on() -> tuple[float, float]:
    """Threads of one client take turns in real time; reads and requests a section."""
    table = Table()
    table.latency_seconds = 0.002
    tokens: list[int] = []
    inside = threading.Lock()

    def work() -> None:
        for _ in range(SECTIONS):
            with locks.hold("a", max_wait=60) as lock:
                assert inside.acquire(blocking=False)
                tokens.append(lock.fencing_token)
                time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - work
                inside.release()

    with LockClient("locks", client=table) as locks:  # type: ignore[arg-type]  # a substitute
        Together().run(*[work] * THREADS)
    sections = THREADS * SECTIONS
    assert tokens == sorted(set(tokens))
    assert len(tokens) == sections
    return sum(name in READS for name in table.log) / sections, len(table.log) / sections


MOST_READS, MOST_REQUESTS = 2.2, 5.4


def test_threads_of_one_client_pass_the_lock_on_without_reading() -> None:
    """Requests a section: three to join, one to hand over, and a few at the ends."""
    reads, requests = passed_on()
    assert reads < MOST_READS
    assert requests < MOST_REQUESTS


def test_control_threads_that_are_told_nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine they sleep for longer than the sections take: then it is played again."""
    nothing_is_told(monkeypatch)
    played = (passed_on() for _ in range(3))
    assert any(reads >= MOST_READS and requests >= MOST_REQUESTS for reads, requests in played)
