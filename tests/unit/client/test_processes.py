"""Processes that are frozen, that fork, and whose main thread ends before the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlock import LockClient
from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws
from tests.unit.client.programs import FREEZES_SECONDS, WRITES

CHECKOUT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60
"""For a program; it is killed if it takes longer."""
MODES = ("protected", "unprotected")
USES = ("check", "remaining", "lost", "heartbeat", "transact_write", "condition_check", "no guard")


def program(aws: LocalAws, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.unit.client.programs", *arguments],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **aws.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def found_by(aws: LocalAws, name: str, table_name: str, mode: str = "protected") -> dict[str, Any]:
    process = program(aws, name, table_name, mode)
    out, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert out, errors
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_locks_are_renewed_although_the_main_thread_has_ended(aws: LocalAws) -> None:
    with ThreadPoolExecutor(2) as pool:
        protected, unprotected = pool.map(
            lambda mode: found_by(aws, "ends_its_main_thread", "none", mode), MODES
        )
    assert protected == {"renewed": True, "lost": False, "told of danger": True, "held": 0}
    assert (unprotected["renewed"], unprotected["lost"]) == (False, True)


# A process that is stopped past its leases and goes on: its first use of each lock says lost.


@pytest.fixture(scope="module")
def went_on(aws: LocalAws, lock_table: str) -> dict[str, dict[str, int]]:
    """How many uses of each kind went through, by two clocks; all locks have other holders then."""
    process = program(aws, "freezes", lock_table, "both")
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()
    try:
        assert process.stdout.readline() == "holding\n"
        process.send_signal(signal.SIGSTOP)
        with LockClient(lock_table, client=aws.client("dynamodb"), lease=60) as others:
            names = [f"{mode}-{use}" for mode in MODES for use in USES]
            assert not any(others.try_acquire(name) for name in names)
            time.sleep(FREEZES_SECONDS + 5)
            assert all(others.try_acquire(name) for name in names)
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate("go on\n", timeout=LIMIT_SECONDS)
        answer: dict[str, dict[str, int]] = json.loads(out)
        return answer
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=20)


def test_the_first_use_after_the_thaw_says_lost_and_every_guarded_write_is_refused(
    went_on: dict[str, dict[str, int]],
) -> None:
    assert went_on["protected"] == {**dict.fromkeys(USES, 0), "no guard": WRITES}


def test_a_lease_measured_by_a_clock_that_was_stopped_too_would_go_on(
    went_on: dict[str, dict[str, int]],
) -> None:
    """What DynamoDB decides needs no clock."""
    by_clock = dict.fromkeys(("check", "remaining", "lost"), 1)
    assert went_on["unprotected"] == {**dict.fromkeys(USES, 0), **by_clock, "no guard": WRITES}


# A fork: the child has none of its parent's locks, and makes its own with a client that works.


def forked(aws: LocalAws, table_name: str, mode: str) -> dict[str, Any]:
    """The control again, if its child was forked while a mutex was held, and hung for ever."""
    for _ in range(1 if mode == "protected" else 3):
        answer = found_by(aws, "forks", table_name, mode)
        if answer["child"]:
            break
    return answer


@pytest.fixture(scope="module")
def answers(aws: LocalAws, lock_table: str) -> dict[str, dict[str, Any]]:
    """With and without the protection, side by side, to save time."""
    with ThreadPoolExecutor(len(MODES)) as pool:
        runs = pool.map(lambda mode: forked(aws, lock_table, mode), MODES)
        return dict(zip(MODES, runs, strict=True))


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
            "block": "LockLost",
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
    """The control is a child that closes it: it might never come to its end."""
    answer = found_by(aws, "forks_in_connection_pool", lock_table)
    assert answer["idle"] == "came to its end"
    assert answer["locking"].startswith("this LockClient was given an AWS client before")
    assert answer["closing"] is None


def test_a_child_that_releases_its_copy_late_waits_for_no_mutex_and_reports_no_loss() -> None:
    """Its lease is over, and a thread of the parent held its mutexes."""
    told: list[str] = []
    locks = FakeLockClient()
    lock = locks.acquire("a", lease=30, on_lost=lambda _lock, reason: told.append(reason))
    lease, remembered = lock._handle.lease, lock._services.unreleased  # noqa: SLF001 - as a fork leaves them
    lease._process = -1  # noqa: SLF001 - same
    locks.clock.stall(40)
    releasing = threading.Thread(target=lock.release, daemon=True)
    with lease._mutex, remembered._mutex:  # noqa: SLF001 - same
        releasing.start()
        releasing.join(10)
        assert not releasing.is_alive()
    assert told == []


def test_a_forked_child_knows_no_waiters_of_its_parent() -> None:
    with FakeLockClient() as locks:
        before = locks._services.store_factory.local_waiters  # noqa: SLF001 - what is reset
        locks._reset_after_fork()  # noqa: SLF001 - as a fork does
        assert locks._services.store_factory.local_waiters is not before  # noqa: SLF001 - same
