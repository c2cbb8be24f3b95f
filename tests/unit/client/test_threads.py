"""Threads that cannot be had, and a main thread that ends before the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlock import LockClient
from fairlock.client.threads import Callbacks, WorkerPool
from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws
from tests.unit.client.support.doubles import Table

HANGING = 20
CHECKOUT = Path(__file__).resolve().parents[3]


def what_became(mode: str) -> dict[str, object]:
    program = [sys.executable, "-m", "tests.unit.client.programs.main_thread_ends", mode]
    done = subprocess.run(
        program, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_locks_are_renewed_although_the_main_thread_has_ended() -> None:
    with ThreadPoolExecutor(2) as pool:
        protected, unprotected = pool.map(what_became, ("protected", "unprotected"))
    assert protected == {"renewed": True, "lost": False, "told of danger": True, "held": 0}
    assert (unprotected["renewed"], unprotected["lost"]) == (False, True)


class Reluctant(threading.Thread):
    """A thread that cannot be started while the system has none left, by the prefix of its name."""

    exhausted: str | None = None
    refused: threading.Event

    def start(self) -> None:
        if self.exhausted is not None and self.name.startswith(self.exhausted):
            self.refused.set()
            raise RuntimeError("can't start new thread")
        super().start()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> type[Reluctant]:
    class Threads(Reluctant):
        """Those of one test."""

        refused = threading.Event()

    monkeypatch.setattr("threading.Thread", Threads)
    return Threads


def often_renewed(table: Table) -> LockClient:
    """Its locks are renewed ten times a second; none is lost while a test waits for that."""
    return LockClient("locks", client=table, lease=60, heartbeat_every=0.1)  # type: ignore[arg-type]  # a substitute


def test_without_a_thread_for_heartbeats_the_lock_is_given_back_and_later_ones_are_renewed(
    threads: type[Reluctant],
) -> None:
    table = Table()
    with often_renewed(table) as locks:
        threads.exhausted = "fairlock-scheduler"
        with pytest.raises(RuntimeError, match="thread"):
            locks.acquire("a")
        assert table.state("a").held == 0
        threads.exhausted = None
        lock = locks.acquire("a")
        assert table.does_more(2)
        assert not lock.lost.is_set()


def test_a_heartbeat_for_which_there_is_no_thread_is_tried_again(
    threads: type[Reluctant],
) -> None:
    table = Table()
    with often_renewed(table) as locks:
        threads.exhausted = "fairlock-heartbeat"
        lock = locks.acquire("a")
        assert threads.refused.wait(30)
        threads.exhausted = None
        assert table.does_more(2)
        assert not lock.lost.is_set()


def test_a_pool_has_no_more_threads_than_it_needs_and_survives_what_its_work_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
        for number in range(HANGING):
            callbacks.call_soon(f"on_lost of lock '{number}'", hang)
        callbacks.call_soon("on_lost of lock 'a'", told.set)
        assert told.wait(30)
    finally:
        goes_on.set()
        callbacks.close()


def test_a_callback_for_which_there_is_no_thread_is_called_later(
    threads: type[Reluctant], caplog: pytest.LogCaptureFixture
) -> None:
    callbacks = Callbacks()
    told: list[str] = []
    threads.exhausted = "fairlock-callback"
    callbacks.call_soon("on_lost of lock 'a'", lambda: told.append("a"))
    assert told == []
    assert "no thread for on_lost of lock 'a', it is called later" in caplog.text
    threads.exhausted = None
    callbacks.call_soon("on_lost of lock 'b'", lambda: told.append("b"))
    callbacks.close()
    assert sorted(told) == ["a", "b"]


def test_a_callback_that_wants_to_end_the_process_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callbacks = Callbacks()
    callbacks.call_soon("on_lost of lock 'a'", sys.exit)
    callbacks.close()
    assert "on_lost of lock 'a' failed" in caplog.text
    assert "SystemExit" in caplog.text


def test_the_loss_of_a_lock_that_a_closed_client_left_to_its_lease_is_noticed() -> None:
    locks = LockClient("locks", client=Table(), lease=1)  # type: ignore[arg-type]  # a substitute
    lock = locks.acquire("a")
    waiter = threading.Thread(target=lock.lost.wait, daemon=True)
    waiter.start()
    locks.close()
    waiter.join(30)
    assert not waiter.is_alive()


# A fork: the child has none of its parent's locks, and makes its own with a client that works.


def run(
    aws: LocalAws, table_name: str, mode: str, *, program: str = "fork_while_holding"
) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"tests.unit.client.programs.{program}", table_name, mode],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **aws.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def played(aws: LocalAws, table_name: str, mode: str) -> dict[str, Any]:
    """The control again, if its child was forked while a mutex was held, and hung for ever."""
    for _ in range(1 if mode == "protected" else 3):
        answer = run(aws, table_name, mode)
        if answer["child"]:
            break
    return answer


@pytest.fixture(scope="module")
def answers(aws: LocalAws, lock_table: str) -> dict[str, dict[str, Any]]:
    """With and without the protection, side by side, to save time."""
    modes = ("protected", "unprotected")
    with ThreadPoolExecutor(len(modes)) as pool:
        runs = pool.map(lambda mode: played(aws, lock_table, mode), modes)
        return dict(zip(modes, runs, strict=True))


def test_a_forked_child_is_without_its_parents_locks_and_makes_its_own(
    answers: dict[str, dict[str, Any]],
) -> None:
    assert answers["protected"] == {
        "child": {
            "threads": 1,
            "lost": True,
            "lost is waited for": True,
            "remaining": 0.0,
            "check": "LockLost",
            "heartbeat": "LockLost",
            "condition_check": "LockLost",
            "release": False,
            "own lock is renewed": None,
            "connections of its own": True,
        },
        "child's status": 0,
        "parent": None,
        "release": True,
    }


def test_a_child_that_took_itself_for_the_holder_would_release_its_parents_lock(
    answers: dict[str, dict[str, Any]],
) -> None:
    answer = answers["unprotected"]
    assert answer["child"]["release"] is True
    assert answer["parent"] == "LockLost"


def test_a_client_that_was_given_is_left_alone_in_a_child_and_a_caller_of_it_is_told(
    aws: LocalAws, lock_table: str
) -> None:
    answer = run(aws, lock_table, "protected", program="fork_in_connection_pool")
    assert answer["idle"] == "came to its end"
    assert answer["locking"].startswith("this LockClient was given an AWS client before")


def test_a_child_that_closed_it_might_never_come_to_its_end(aws: LocalAws, lock_table: str) -> None:
    assert run(aws, lock_table, "unprotected", program="fork_in_connection_pool") == {"idle": None}


def late_release_of_a_copy(*, marked: bool) -> tuple[bool, list[str]]:
    """Releases a copy whose lease is over, while a thread of the parent held its mutexes.

    Returns whether that came to an end, and the reasons that `on_lost` was called with.
    """
    told: list[str] = []
    locks = FakeLockClient()
    lock = locks.acquire("a", lease=30, on_lost=lambda _lock, reason: told.append(reason))
    lease, remembered = lock._handle.lease, lock._services.unreleased  # noqa: SLF001 - as a fork leaves them
    lease._process = -1 if marked else lease._process  # noqa: SLF001 - same
    locks.clock.stall(40)
    releasing = threading.Thread(target=lock.release, daemon=True)
    with lease._mutex, remembered._mutex:  # noqa: SLF001 - same
        releasing.start()
        releasing.join(10 if marked else 0.3)
        has_ended = not releasing.is_alive()
    releasing.join(10)
    return has_ended, told


def test_a_child_that_releases_its_copy_late_waits_for_no_mutex_and_reports_no_loss() -> None:
    assert late_release_of_a_copy(marked=True) == (True, [])


def test_a_copy_that_is_not_known_as_one_would_wait_and_report() -> None:
    assert late_release_of_a_copy(marked=False) == (False, ["its lease is over"])
