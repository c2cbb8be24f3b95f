"""A process that is stopped past its leases and goes on: its first use of each lock says lost."""

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

import pytest

from fairlock import LockClient
from testbed.localaws import LocalAws
from tests.unit.client.programs.stopped_while_holding import LEASE_SECONDS, LOCKS, WRITES
from tests.unit.client.support.wire import dynamodb_of

CHECKOUT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60
"""For the program; it is killed if it takes longer."""


def freeze_and_thaw(aws: LocalAws, table_name: str, mode: str) -> dict[str, int]:
    """How many uses of each kind went through; all locks have other holders by then."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.client.programs.stopped_while_holding",
            table_name,
            mode,
        ],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **aws.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()
    try:
        assert process.stdout.readline() == "holding\n"
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with LockClient(table_name, client=dynamodb_of(aws), lease=60) as others:
            names = [f"{mode}-{number}" for number in range(LOCKS)]
            assert [others.try_acquire(name) for name in names] == [None] * LOCKS
            time.sleep(LEASE_SECONDS + 5)
            assert all(others.try_acquire(name) is not None for name in names)
            assert time.monotonic() - stopped > LEASE_SECONDS
            process.stdin.write("go on\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            answer: dict[str, int] = json.loads(process.stdout.read())
        return answer
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def went_on(aws: LocalAws, lock_table: str) -> dict[str, dict[str, int]]:
    """With and without the protection, side by side, to save time."""
    modes = ("protected", "unprotected")
    with ThreadPoolExecutor(len(modes)) as pool:
        runs = pool.map(lambda mode: freeze_and_thaw(aws, lock_table, mode), modes)
        return dict(zip(modes, runs, strict=True))


def test_the_first_use_after_the_thaw_says_lost_and_every_guarded_write_is_refused(
    went_on: dict[str, dict[str, int]],
) -> None:
    assert went_on["protected"] == {
        "check": 0,
        "remaining": 0,
        "lost": 0,
        "heartbeat": 0,
        "transact_write": 0,
        "condition_check": 0,
        "no guard": 3 * WRITES,
    }


def test_a_lease_measured_by_a_clock_that_was_stopped_too_would_go_on(
    went_on: dict[str, dict[str, int]],
) -> None:
    uses = went_on["unprotected"]
    assert uses["check"] > 0
    assert uses["lost"] > 0
    # What DynamoDB decides needs no clock.
    assert (uses["heartbeat"], uses["transact_write"], uses["condition_check"]) == (0, 0, 0)
