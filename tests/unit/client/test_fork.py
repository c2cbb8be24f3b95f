"""A fork: the child has none of its parent's locks, and makes its own with a client that works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws

CHECKOUT = Path(__file__).resolve().parents[3]


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
