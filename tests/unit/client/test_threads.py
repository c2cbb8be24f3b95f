"""Threads that cannot be had, and signal handlers that use a lock in the middle of a request."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.client.threads import Callbacks, WorkerPool
from fairlock.errors import FairlockError
from tests.support.faulty_table import TRANSACTIONS, meanwhile
from tests.unit.client.doubles import Table, often_renewed


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """No thread can be started whose name begins with what is `exhausted`; tells `refused`."""
    threads = SimpleNamespace(exhausted="-", refused=threading.Event())
    start = threading.Thread.start

    def start_if_possible(thread: threading.Thread) -> None:
        if thread.name.startswith(threads.exhausted):
            threads.refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_possible)
    return threads


def test_without_a_thread_for_heartbeats_the_lock_is_given_back(threads: SimpleNamespace) -> None:
    table = Table()
    with often_renewed(table) as locks:
        threads.exhausted = "fairlock-scheduler"
        with pytest.raises(RuntimeError, match="thread"):
            locks.acquire("a")
        assert table.state("a").held == 0
        threads.exhausted = "-"
        lock = locks.acquire("a")
        assert table.does_more(2)
        assert not lock.lost.is_set()


def test_a_heartbeat_for_which_there_is_no_thread_is_tried_again(threads: SimpleNamespace) -> None:
    table = Table()
    with often_renewed(table) as locks:
        threads.exhausted = "fairlock-heartbeat"
        lock = locks.acquire("a")
        assert threads.refused.wait(30)
        threads.exhausted = "-"
        assert table.does_more(2)
        assert not lock.lost.is_set()


def test_a_pool_survives_what_its_work_raises_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool(3, name="pool")
    together = threading.Barrier(3)
    done: list[int] = []

    def leave() -> None:
        raise SystemExit

    def work(number: int) -> None:
        together.wait(10)
        done.append(number)

    pool.submit(leave)
    for number in range(6):
        pool.submit(partial(work, number))
    pool.close()
    assert sorted(done) == list(range(6))
    assert "SystemExit" in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool")]


def test_callbacks_that_hang_keep_no_other_lock_from_being_told() -> None:
    callbacks = Callbacks()
    goes_on, told = threading.Event(), threading.Event()

    def hang() -> None:
        goes_on.wait(60)

    try:
        for number in range(20):
            callbacks.call_soon(f"on_lost of lock '{number}'", hang)
        callbacks.call_soon("on_lost of lock 'a'", told.set)
        assert told.wait(30)
    finally:
        goes_on.set()
        callbacks.close()


def test_a_callback_for_which_there_is_no_thread_is_called_later(
    threads: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = Callbacks()
    told: list[str] = []
    threads.exhausted = "fairlock-callback"
    callbacks.call_soon("on_lost of lock 'a'", lambda: told.append("a"))
    assert told == []
    assert "no thread for on_lost of lock 'a', it is called later" in caplog.text
    threads.exhausted = "-"
    callbacks.call_soon("on_lost of lock 'b'", lambda: told.append("b"))
    callbacks.close()
    assert sorted(told) == ["a", "b"]


def test_a_callback_that_would_end_the_process_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks()
    callbacks.call_soon("on_lost of lock 'a'", sys.exit)
    callbacks.close()
    assert "on_lost of lock 'a' failed" in caplog.text
    assert "SystemExit" in caplog.text


def test_a_write_that_is_refused_because_of_our_own_release_is_no_loss() -> None:
    """The release overtakes the write, and its answer is on its way until that is refused."""
    table, told = Table(), list[Lock]()
    released, refused = threading.Event(), threading.Event()

    def overtake() -> None:
        pool.submit(lock.release)
        assert released.wait(10)

    def hold_the_first_answer_back(_headers: object) -> None:
        if not released.is_set():
            released.set()
            assert refused.wait(10)

    with LockClient("locks", client=table, lease=3600) as locks, ThreadPoolExecutor() as pool:
        lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        table.will(meanwhile((), overtake, of=TRANSACTIONS))
        table.answers = hold_the_first_answer_back
        with pytest.raises(LockLost):
            lock.transact_write([PUT])
        refused.set()
    assert (lock.lost.is_set(), told) == (False, [])


# A signal handler that releases or closes in the middle of a request: it does not wait for itself.
#
# Here the handler is called from within the request, in the same thread, as Python runs handlers.

PUT: Any = {"Put": {"TableName": "notes", "Item": {"pk": {"S": "n"}, "sk": {"S": "n"}}}}
REQUESTS: dict[str, Callable[[Lock], object]] = {
    "heartbeat": lambda lock: lock.heartbeat(),
    "release": lambda lock: lock.release(),
    "write and release": lambda lock: lock.transact_write([PUT], release=True),
}
IN_EACH_REQUEST = pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)


class Program:
    """Two locks, and a signal that comes in the middle of the next request of the first one."""

    def __init__(self) -> None:
        self.table = Table()
        self.locks = LockClient("locks", client=self.table, lease=3600, heartbeat_every=math.inf)
        self.lock = self.locks.acquire("a")
        self.other = self.locks.acquire("b")
        self.outcome: list[object] = []

    def interrupted(self, request: Callable[[Lock], object], handler: Callable[[], object]) -> bool:
        """Returns whether the handler, and what it came in the middle of, come to their ends."""

        def handle() -> None:
            try:
                self.outcome.append(handler())
            except FairlockError as error:
                self.outcome.append(error)

        def work() -> None:
            with suppress(FairlockError):
                request(self.lock)

        self.table.will(meanwhile(1, handle))
        main = threading.Thread(target=work, daemon=True)
        main.start()
        main.join(30)
        return not main.is_alive()


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.locks.close()


@IN_EACH_REQUEST
def test_a_handler_may_close_and_give_back_all_other_locks(
    program: Program, request_of: Callable[[Lock], object], caplog: pytest.LogCaptureFixture
) -> None:
    assert program.interrupted(request_of, lambda: program.locks.close(release=True))
    assert program.table.state("b").held == 0
    assert "not released: a signal handler asks for it in the middle of a request" in caplog.text
    assert not program.lock.lost.is_set()


@IN_EACH_REQUEST
def test_a_handler_that_releases_the_very_lock_is_told_that_its_lease_ends_it(
    program: Program, request_of: Callable[[Lock], object]
) -> None:
    assert program.interrupted(request_of, program.lock.release)
    [told] = program.outcome
    assert isinstance(told, LockStoreUnavailable)
    assert program.lock.release() is True  # In its own time.
    assert program.table.state("a").held == 0


def test_a_handler_that_closes_amid_the_planning_does_not_wait_for_it(program: Program) -> None:
    def in_the_middle(_lock: Lock) -> None:
        with program.locks._services.heartbeats._mutex:  # noqa: SLF001 - as `add` and `remove` do
            program.locks.close()

    assert program.interrupted(in_the_middle, lambda: None)


def test_a_handler_that_closes_does_not_wait_for_a_waiting_heartbeat(program: Program) -> None:
    begun = threading.Event()

    def close_beside_a_heartbeat() -> None:
        pool = program.locks._services.heartbeats._pool  # noqa: SLF001 - its moment is no one's to choose
        assert pool is not None

        def heartbeat() -> None:
            begun.set()
            with suppress(FairlockError):
                program.lock._handle.heartbeat()  # noqa: SLF001 - same

        pool.submit(heartbeat)
        assert begun.wait(10)
        program.locks.close(release=True)

    assert program.interrupted(lambda lock: lock.heartbeat(), close_beside_a_heartbeat)
