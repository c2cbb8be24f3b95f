"""Processes that are frozen, that fork, and whose main thread ends before the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fairlock import LockClient
from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws

LIMIT_SECONDS = 60
"""For a program; it is killed if it takes longer."""


def program(aws: LocalAws, *arguments: str) -> subprocess.Popen[str]:
    passed_on = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.unit.client.programs", *arguments],
        cwd=Path(__file__).resolve().parents[3],
        env={**passed_on, **aws.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def found_by(aws: LocalAws, name: str, table_name: str = "none") -> dict[str, Any]:
    process = program(aws, name, table_name)
    out, errors = process.communicate(timeout=LIMIT_SECONDS)
    assert out, errors
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_locks_are_renewed_although_the_main_thread_has_ended(aws: LocalAws) -> None:
    found = found_by(aws, "ends_its_main_thread")
    assert found == {"renewed": True, "lost": False, "told of danger": True, "held": 0}


# A process that is stopped past its leases and goes on: its first use of each lock says lost.

AFTER_THE_THAW = {
    **dict.fromkeys(("check", "heartbeat", "transact_write"), "LockLost"),
    "condition_check": "TransactionCanceledException",
    "no guard": None,
}


def test_after_the_thaw_each_lock_is_lost_at_its_first_use(aws: LocalAws, lock_table: str) -> None:
    """It was stopped until all its locks had other holders."""
    process = program(aws, "freezes", lock_table)
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()
    try:
        assert process.stdout.readline() == "holding\n"
        process.send_signal(signal.SIGSTOP)
        with LockClient(lock_table, client=aws.client("dynamodb"), lease=60) as others:
            for name in AFTER_THE_THAW:
                others.acquire(name, max_wait=LIMIT_SECONDS)
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate("go on\n", timeout=LIMIT_SECONDS)
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=20)
    assert json.loads(out) == AFTER_THE_THAW


# A fork: the child has none of its parent's locks, and makes its own with a client that works.


def test_a_forked_child_has_only_locks_of_its_own(aws: LocalAws, lock_table: str) -> None:
    assert found_by(aws, "forks", lock_table) == {
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
            "own lock is renewed": True,
            "connections of its own": True,
        },
        "child's status": 0,
        "parent's is renewed": True,
        "release": True,
    }


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
        before = locks._services.local_waiters  # noqa: SLF001 - what is reset
        locks._reset_after_fork()  # noqa: SLF001 - as a fork does
        assert locks._services.local_waiters is not before  # noqa: SLF001 - same
