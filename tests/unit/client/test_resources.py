"""Threads, sockets and other file descriptors: as many after as before."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fairlock import LockClient
from testbed.localaws import LocalAws
from tests.support.faulty_table import meanwhile
from tests.unit.client.doubles import Table, descriptors

CYCLES = 500
NewThreads = Callable[[], list[str]]


@pytest.fixture
def ours() -> NewThreads:
    """Gives the names of all threads that were started since this test began."""
    before = set(threading.enumerate())
    return lambda: sorted(thread.name for thread in threading.enumerate() if thread not in before)


def test_hundreds_of_cycles_leave_no_thread_and_no_lock_behind(ours: NewThreads) -> None:
    table = Table()
    with LockClient("locks", client=table) as locks:
        assert ours() == [], "none is started before a lock is held"
        for _ in range(CYCLES):
            locks.acquire("a").release()
        assert ours() == ["fairlock-scheduler"]
        assert locks._services.heartbeats.handles() == []  # noqa: SLF001 - nothing outside tells that
    assert ours() == []
    assert len(table.requests) == 2 * CYCLES


def use_a_client(table_name: str, number: int) -> None:
    """Acquires, lets heartbeats happen, waits for a lock that others have; closes."""
    with LockClient(table_name, lease=60, heartbeat_every=0.05) as locks:
        held = locks.acquire(f"resources-{number}")
        held.lost.wait(0.1)
        assert locks.try_acquire(f"resources-{number}") is None
        held.check()


def test_clients_that_renew_leave_nothing(
    aws: LocalAws, lock_table: str, ours: NewThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # It may have credentials of other tests.
    use_a_client(lock_table, -1)  # What is made once per process, is made now.
    files = descriptors()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(partial(use_a_client, lock_table), range(10)))
    assert ours() == []
    # Fewer, if sockets of an earlier test have been closed meanwhile.
    assert descriptors() <= files


def client_without_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[LockClient, Table, threading.Thread]:
    """A client that has acquired and released, and takes a rest every 50 ms; its thread."""
    monkeypatch.setattr("fairlock.client.heartbeats.LONGEST_NAP_SECONDS", 0.05)
    before = set(threading.enumerate())
    table = Table()
    locks = LockClient("locks", client=table, heartbeat_every=0.05)
    with locks.hold("a"):
        started = set(threading.enumerate()) - before
    [scheduler] = [thread for thread in started if thread.name == "fairlock-scheduler"]
    return locks, table, scheduler


def has_ended(thread: threading.Thread, *, within: float) -> bool:
    thread.join(within)
    return not thread.is_alive()


def test_a_client_dropped_without_a_lock_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    locks, _, scheduler = client_without_a_lock(monkeypatch)
    del locks
    gc.collect()
    assert has_ended(scheduler, within=20)


def test_a_client_keeps_its_thread_while_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one could be impossible to start, at the end of the interpreter for instance."""
    locks, _, scheduler = client_without_a_lock(monkeypatch)
    assert not has_ended(scheduler, within=0.3)
    locks.close()
    assert has_ended(scheduler, within=20)


def test_the_threads_of_a_lock_end_with_it_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    locks, table, scheduler = client_without_a_lock(monkeypatch)
    lock = locks.acquire("a")
    del locks
    gc.collect()
    assert table.does_more(10, seconds=20)
    lock.check()
    assert lock.release()
    assert has_ended(scheduler, within=20)


def test_close_waits_for_the_heartbeat_that_is_under_way(ours: NewThreads) -> None:
    table, begun, go_on = Table(), threading.Event(), threading.Event()
    locks = LockClient("locks", client=table, lease=60, heartbeat_every=0.05)
    lock = locks.acquire("a")

    def hold_back() -> None:
        begun.set()
        assert go_on.wait(20)

    table.will(meanwhile((), hold_back))
    assert begun.wait(20)
    closing = threading.Thread(target=locks.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(20)
    assert ours() == []
    assert not lock.lost.is_set()
