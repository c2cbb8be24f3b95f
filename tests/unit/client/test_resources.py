"""Threads, sockets and other file descriptors: as many after as before."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest

from fairlock import LockClient
from fairlock.client.connection import Connection
from fairlock.testing.fake_table import MemoryTable
from testbed.localaws import LocalAws
from tests.unit.client.doubles import Table

CYCLES = 2_000
CYCLES_OVER_SOCKETS = 20
CLIENTS = 30


NewThreads = Callable[[], list[str]]


@pytest.fixture
def ours() -> NewThreads:
    """Gives the names of all threads that were started since this test began."""
    before = set(threading.enumerate())
    return lambda: sorted(thread.name for thread in threading.enumerate() if thread not in before)


def descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@dataclass
class OneLock:
    """Answers claims and releases of one lock as DynamoDB would: ten thousand take a second."""

    exceptions: Any = field(default_factory=MemoryTable.exceptions)
    item: dict[str, Any] = field(default_factory=dict)
    requests: int = 0

    def update_item(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        self.requests += 1
        names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
        if ":holder" in values:
            number = {"N": str(self.requests)}
            self.item = {names["#mine"]: values[":holder"], names["#my_token"]: number}
        return {"Attributes": self.item}

    def close(self) -> None:
        """Nothing is open."""


def test_two_thousand_cycles_leave_no_thread_and_no_lock_behind(ours: NewThreads) -> None:
    table = OneLock()
    with LockClient("locks", client=table) as locks:  # type: ignore[arg-type]  # replaces one
        for _ in range(CYCLES):
            locks.acquire("a").release()
        assert ours() == ["fairlock-scheduler"]
        assert locks._services.heartbeats.handles() == []  # noqa: SLF001 - nothing outside tells that
    assert ours() == []
    assert table.requests == 2 * CYCLES


def descriptors_after_cycles(session: boto3.Session, table_name: str) -> tuple[int, int, int]:
    """Before anything, after the first cycle, and after many: a lock acquired and released."""
    files = descriptors()
    with LockClient(table_name, session=session) as locks:
        locks.acquire("sockets").release()
        after_one = descriptors()
        for _ in range(CYCLES_OVER_SOCKETS):
            locks.acquire("sockets").release()
        return files, after_one, descriptors()


def test_cycles_over_sockets_leave_no_socket_behind(aws: LocalAws, lock_table: str) -> None:
    session = session_at(aws)
    descriptors_after_cycles(session, lock_table)  # What is made once per process, is made now.
    before, after_one, after_many = descriptors_after_cycles(session, lock_table)
    assert before < after_one == after_many
    assert descriptors() == before


def test_a_client_for_each_request_would_leave_sockets_behind(
    aws: LocalAws, lock_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(connection: Connection, service: str) -> Any:  # noqa: ANN401 - a boto3 client
        made.append(connection._make(service))
        return made[-1]

    monkeypatch.setattr(Connection, "_client", make)
    _, after_one, after_many = descriptors_after_cycles(session_at(aws), lock_table)
    assert after_many >= after_one + CYCLES_OVER_SOCKETS
    for client in made:
        client.close()


def use_a_client(session: boto3.Session, table_name: str, number: int) -> None:
    """Acquires, lets heartbeats happen, waits for a lock that others have; closes."""
    locks = LockClient(table_name, session=session, lease=2, heartbeat_every=0.05)
    with locks:
        held = locks.acquire(f"resources-{number}")
        held.lost.wait(0.1)
        assert locks.try_acquire(f"resources-{number}") is None
        held.check()


def test_thirty_clients_leave_nothing_behind(
    aws: LocalAws, lock_table: str, ours: NewThreads
) -> None:
    session = session_at(aws)
    use_a_client(session, lock_table, -1)  # What is made once per process, is made now.
    files = descriptors()
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda number: use_a_client(session, lock_table, number), range(CLIENTS)):
            pass
    assert ours() == []
    # Fewer, if sockets of an earlier test have been closed meanwhile.
    assert descriptors() <= files


def test_a_client_that_is_not_closed_leaves_threads_and_connections(
    aws: LocalAws, lock_table: str, ours: NewThreads
) -> None:
    files = descriptors()
    locks = LockClient(lock_table, session=session_at(aws), lease=2, heartbeat_every=0.1)
    held = locks.acquire("never-closed")
    held.lost.wait(0.3)
    assert "fairlock-scheduler" in ours()
    assert any(name.startswith("fairlock-heartbeat") for name in ours())
    assert descriptors() > files
    locks.close(release=True)
    assert ours() == []


def client_without_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[LockClient, Table, threading.Thread]:
    """A client that has acquired and released, and takes a rest every 50 ms; its thread."""
    monkeypatch.setattr("fairlock.client.heartbeats.LONGEST_NAP_SECONDS", 0.05)
    before = set(threading.enumerate())
    table = Table()
    locks = LockClient("locks", client=table, heartbeat_every=0.05)  # type: ignore[arg-type]  # a substitute
    with locks.hold("a"):
        started = set(threading.enumerate()) - before
    [scheduler] = [thread for thread in started if thread.name == "fairlock-scheduler"]
    return locks, table, scheduler


def has_ended(thread: threading.Thread, *, within: float) -> bool:
    thread.join(within)
    return not thread.is_alive()


def test_a_client_that_is_dropped_without_a_lock_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks, _, scheduler = client_without_a_lock(monkeypatch)
    del locks
    gc.collect()
    assert has_ended(scheduler, within=20)


def test_a_client_that_is_used_again_after_a_rest_has_its_thread_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one could be impossible to start, at the end of the interpreter for instance."""
    locks, _, scheduler = client_without_a_lock(monkeypatch)
    assert not has_ended(scheduler, within=0.3)
    locks.close()
    assert has_ended(scheduler, within=20)


def test_a_lock_that_outlives_its_client_is_renewed_and_its_threads_end_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locks, table, scheduler = client_without_a_lock(monkeypatch)
    lock = locks.acquire("a")
    del locks
    gc.collect()
    assert table.does_more(10, seconds=20)
    lock.check()
    assert lock.release()
    assert has_ended(scheduler, within=20)


def test_close_waits_for_the_heartbeat_that_is_under_way(ours: NewThreads) -> None:
    table = Table()
    locks = LockClient("locks", client=table, lease=1, heartbeat_every=0.05)  # type: ignore[arg-type]  # a substitute
    lock = locks.acquire("a")
    begun = threading.Event()
    table.before = lambda _name, _arguments: begun.set()
    table.latency_seconds = 0.4
    assert begun.wait(20)
    locks.close()
    done = len(table.log)
    assert ours() == []
    table.latency_seconds = 0
    lock.lost.wait(0.3)
    assert len(table.log) == done


def test_no_thread_is_started_before_a_lock_is_held(ours: NewThreads) -> None:
    table = Table()
    locks = LockClient("locks", client=table, heartbeat_every=math.inf)  # type: ignore[arg-type]  # a substitute
    assert ours() == []
    locks.close()


def session_at(aws: LocalAws) -> boto3.Session:
    """A session whose clients talk to the embedded AWS."""

    class Local(boto3.Session):
        def client(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - as boto3's
            return super().client(*args, **{"endpoint_url": aws.endpoint_url, **settings})

    return Local(
        aws_access_key_id=aws.access_key, aws_secret_access_key="test", region_name="us-east-1"
    )
